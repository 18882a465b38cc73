import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Writes, as one JSON document, what the Kafka on the class path says of itself: features, files that it reads and
 * writes, metadata records, errors, configs. Only what every release has is used by name; the rest is looked up, and is
 * null where a release has no such class.
 */
public final class ReleaseFacts {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        ObjectNode facts = JSON.createObjectNode();
        facts.set("metadata_versions", metadataVersions());
        facts.set("features", features());
        facts.set("files", files());
        facts.set("records", records());
        facts.set("errors", errors());
        facts.set("configs", configs());
        facts.set("limits", limits());
        System.out.println(JSON.writeValueAsString(facts));
    }

    /** Every level that can be in a log: its name, and whether it changed what is written (so no way back below it). */
    private static ObjectNode metadataVersions() throws Exception {
        Field changed = MetadataVersion.class.getDeclaredField("didMetadataChange");
        changed.setAccessible(true);
        ObjectNode levels = JSON.createObjectNode();
        for (MetadataVersion version : MetadataVersion.values()) {
            if (version.featureLevel() > 0) {
                ObjectNode level = levels.putObject(Short.toString(version.featureLevel()));
                level.put("name", version.version());
                level.put("changed", changed.getBoolean(version));
            }
        }
        return levels;
    }

    /** Feature: [lowest, highest level], as a controller of this release supports it without unstable versions. */
    private static ObjectNode features() throws Exception {
        Map<?, ?> ranges = (Map<?, ?>) supported();
        ObjectNode found = JSON.createObjectNode();
        for (Map.Entry<String, Object> entry : new TreeMap<String, Object>(cast(ranges)).entrySet()) {
            ArrayNode range = found.putArray(entry.getKey());
            range.add(((Number) call(entry.getValue(), "min")).intValue());
            range.add(((Number) call(entry.getValue(), "max")).intValue());
        }
        return found;
    }

    private static Object supported() throws Exception {
        Class<?> features = Class.forName("org.apache.kafka.controller.QuorumFeatures");
        for (Method method : features.getMethods()) {
            if (method.getName().equals("defaultFeatureMap") || method.getName().equals("defaultSupportedFeatureMap")) {
                return method.getParameterCount() == 0 ? method.invoke(null) : method.invoke(null, false);
            }
        }
        throw new IllegalStateException("QuorumFeatures no longer says which features it supports");
    }

    /** File: [oldest, newest version of its format] that this release reads. */
    private static ObjectNode files() throws Exception {
        ObjectNode found = JSON.createObjectNode();
        String state = "org.apache.kafka.raft.generated.QuorumStateData";
        range(found, "quorum-state", constant(state, "LOWEST_SUPPORTED_VERSION"), constant(state, "HIGHEST_SUPPORTED_VERSION"));
        List<Integer> meta = metaProperties();
        range(found, "meta.properties", meta.isEmpty() ? null : meta.get(0), meta.isEmpty() ? null : meta.get(meta.size() - 1));
        String batch = "org.apache.kafka.common.record.RecordBatch";
        String batchNow = "org.apache.kafka.common.record.internal.RecordBatch";
        range(found, "log", 0, first(constant(batch, "CURRENT_MAGIC_VALUE"), constant(batchNow, "CURRENT_MAGIC_VALUE")));
        String log = "org.apache.kafka.storage.internals.log.";
        String aborted = "org.apache.kafka.common.message.AbortedTxn";
        range(found, "txnindex",
            first(constant(log + "AbortedTxn", "CURRENT_VERSION"), constant(aborted, "LOWEST_SUPPORTED_VERSION")),
            first(constant(log + "AbortedTxn", "CURRENT_VERSION"), constant(aborted, "HIGHEST_SUPPORTED_VERSION")));
        String snapshot = "org.apache.kafka.server.log.remote.metadata.storage.generated.ProducerSnapshot";
        Integer manager = constant(log + "ProducerStateManager", "PRODUCER_SNAPSHOT_VERSION");
        range(found, "snapshot", first(manager, constant(snapshot, "LOWEST_SUPPORTED_VERSION")),
            first(manager, constant(snapshot, "HIGHEST_SUPPORTED_VERSION")));
        String checkpoint = "org.apache.kafka.storage.internals.checkpoint.";
        Integer offsets = first(constant(checkpoint + "OffsetCheckpointFile", "CURRENT_VERSION"), scala("kafka.server.checkpoints.OffsetCheckpointFile$", "CurrentVersion"));
        range(found, "offset-checkpoint", offsets, offsets);
        Integer epochs = constant(checkpoint + "LeaderEpochCheckpointFile", "CURRENT_VERSION");
        range(found, "leader-epoch-checkpoint", epochs, epochs);
        Integer ids = first(constant(checkpoint + "PartitionMetadataFile", "CURRENT_VERSION"), scala("kafka.server.PartitionMetadataFile$", "kafka$server$PartitionMetadataFile$$CurrentVersion"));
        range(found, "partition.metadata", ids, ids);
        return found;
    }

    private static void range(ObjectNode into, String file, Integer lowest, Integer highest) {
        if (lowest == null || highest == null) {
            into.putNull(file);
        } else {
            into.putArray(file).add(lowest.intValue()).add(highest.intValue());
        }
    }

    /** Versions of meta.properties that a KRaft node takes. Up to 3.6 its parser in Scala is asked about each. */
    private static List<Integer> metaProperties() throws Exception {
        List<Integer> taken = new ArrayList<>();
        try {
            Class<?> versions = Class.forName("org.apache.kafka.metadata.properties.MetaPropertiesVersion");
            for (Object version : versions.getEnumConstants()) {
                taken.add(((Number) call(version, "number")).intValue());
            }
        } catch (ClassNotFoundException before37) {
            Object parser = Class.forName("kafka.server.MetaProperties$").getField("MODULE$").get(null);
            Class<?> raw = Class.forName("kafka.server.RawMetaProperties");
            for (int version = 0; version < 10; version++) {
                if (parses(parser, raw, version)) {
                    taken.add(version);
                }
            }
        }
        return taken;
    }

    private static boolean parses(Object parser, Class<?> raw, int version) throws Exception {
        Properties written = new Properties();
        written.setProperty("version", Integer.toString(version));
        written.setProperty("cluster.id", "MkU3OEVBNTcwNTJENDM2Qg");
        written.setProperty(version == 0 ? "broker.id" : "node.id", "1");
        try {
            parser.getClass().getMethod("parse", raw).invoke(parser, raw.getConstructor(Properties.class).newInstance(written));
            return true;
        } catch (InvocationTargetException refused) {
            return false;
        }
    }

    private static ObjectNode records() {
        ObjectNode found = JSON.createObjectNode();
        for (MetadataRecordType type : MetadataRecordType.values()) {
            ArrayNode versions = found.putArray(type.name());
            versions.add(type.id()).add(type.lowestSupportedVersion()).add(type.highestSupportedVersion());
        }
        return found;
    }

    private static ObjectNode errors() {
        ObjectNode found = JSON.createObjectNode();
        for (Errors error : Errors.values()) {
            found.put(error.name(), error.code());
        }
        return found;
    }

    /** Every config of brokers and topics with its default. */
    private static ObjectNode configs() throws Exception {
        ObjectNode found = JSON.createObjectNode();
        found.set("broker", defaults(brokerConfigs()));
        found.set("topic", defaults(topicConfigs()));
        return found;
    }

    /** Of the configs that have one, the range of numbers that is accepted; null where it is open. */
    private static ObjectNode limits() throws Exception {
        ObjectNode found = JSON.createObjectNode();
        found.set("broker", ranges(brokerConfigs()));
        found.set("topic", ranges(topicConfigs()));
        return found;
    }

    private static ObjectNode ranges(ConfigDef def) throws Exception {
        ObjectNode found = JSON.createObjectNode();
        for (ConfigDef.ConfigKey key : def.configKeys().values()) {
            if (key.validator instanceof ConfigDef.Range) {
                ArrayNode range = found.putArray(key.name);
                for (String end : List.of("min", "max")) {
                    Field field = ConfigDef.Range.class.getDeclaredField(end);
                    field.setAccessible(true);
                    range.addPOJO(field.get(key.validator));
                }
            }
        }
        return found;
    }

    private static ConfigDef brokerConfigs() throws Exception {
        return definition("org.apache.kafka.server.config.AbstractKafkaConfig", "kafka.server.KafkaConfig");
    }

    private static ConfigDef topicConfigs() throws Exception {
        return definition("org.apache.kafka.storage.internals.log.LogConfig", "kafka.log.LogConfig");
    }

    private static ConfigDef definition(String now, String before) throws Exception {
        ConfigDef def = definition(now);
        def = def == null ? definition(before) : def;
        if (def == null) {
            throw new IllegalStateException("no class " + now + " with a ConfigDef");
        }
        return def;
    }

    private static ObjectNode defaults(ConfigDef def) {
        ObjectNode found = JSON.createObjectNode();
        for (ConfigDef.ConfigKey key : new TreeMap<>(def.configKeys()).values()) {
            String value = key.defaultValue instanceof List<?> items
                ? items.stream().map(String::valueOf).collect(Collectors.joining(",")) : String.valueOf(key.defaultValue);
            found.put(key.name, key.hasDefault() ? value : "(required)");
        }
        return found;
    }

    private static ConfigDef definition(String name) throws Exception {
        try {
            Class<?> owner = Class.forName(name);
            for (String field : List.of("CONFIG_DEF", "CONFIG")) {
                try {
                    Field of = owner.getDeclaredField(field);
                    of.setAccessible(true);
                    return (ConfigDef) of.get(null);
                } catch (NoSuchFieldException absent) {
                    continue;
                }
            }
            for (Method method : owner.getMethods()) {
                boolean makes = ConfigDef.class.isAssignableFrom(method.getReturnType()) && method.getParameterCount() == 0;
                if (makes && Modifier.isStatic(method.getModifiers())) {
                    return (ConfigDef) method.invoke(null);
                }
            }
        } catch (ClassNotFoundException absent) {
            return null;
        }
        return null;
    }

    private static Integer constant(String owner, String name) throws Exception {
        try {
            Field field = Class.forName(owner).getDeclaredField(name);
            field.setAccessible(true);
            return ((Number) field.get(null)).intValue();
        } catch (ClassNotFoundException | NoSuchFieldException absent) {
            return null;
        }
    }

    /** A value of a Scala object, which is a method of its only instance. */
    private static Integer scala(String owner, String name) throws Exception {
        try {
            Class<?> module = Class.forName(owner);
            Method method = module.getMethod(name);
            return ((Number) method.invoke(module.getField("MODULE$").get(null))).intValue();
        } catch (ClassNotFoundException | NoSuchMethodException absent) {
            return null;
        }
    }

    private static Integer first(Integer one, Integer other) {
        return one != null ? one : other;
    }

    private static Object call(Object on, String method) throws Exception {
        return on.getClass().getMethod(method).invoke(on);
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> cast(Map<?, ?> map) {
        return (Map<String, Object>) map;
    }
}
