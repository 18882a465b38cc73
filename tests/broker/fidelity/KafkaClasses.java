import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Base64;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Properties;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble.VerificationFlag;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LocalLog;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogManager;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** One question a line, as JSON; answers each with what this Kafka's own class does, or with {"error": …}. */
public final class KafkaClasses {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    public static void main(String[] args) throws Exception {
        JSON.configure(JsonGenerator.Feature.ESCAPE_NON_ASCII, true);
        SCHEDULER.startup();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(asked, answer);
            } catch (Exception | OutOfMemoryError refused) {
                answer.removeAll();
                answer.put("error", String.valueOf(refused));
            }
            System.out.println("=" + JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    private static void answer(JsonNode asked, ObjectNode answer) throws Exception {
        switch (asked.get("ask").asText()) {
            case "name" -> named(LocalLog.parseTopicPartitionName(new File(asked.get("dir").asText())), answer);
            case "names" -> names(asked, answer);
            case "offsets" -> offsets(asked, answer);
            case "epochs" -> epochs(asked, answer);
            case "ids" -> answer.put("id", new PartitionMetadataFile(file(asked), channel()).read().topicId().toString());
            case "meta" -> meta(asked, answer);
            case "tiered" -> tiered(asked, answer);
            case "clean" -> answer.put("there", new CleanShutdownFileHandler(asked.get("dir").asText()).exists());
            case "write" -> write(asked, answer);
            case "load" -> load(asked, answer);
            case "message" -> message(asked, answer);
            default -> throw new IllegalArgumentException(asked.toString());
        }
    }

    /** The bytes of a message of the protocol, as its own generated class writes them. */
    private static void message(JsonNode asked, ObjectNode answer) throws Exception {
        short version = (short) asked.get("version").asInt();
        Class<?> converter = Class.forName("org.apache.kafka.common.message." + asked.get("name").asText() + "DataJsonConverter");
        Object data = converter.getMethod("read", JsonNode.class, short.class).invoke(null, asked.get("data"), version);
        ByteBuffer written = MessageUtil.toByteBufferAccessor((Message) data, version).buffer();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        answer.put("b64", Base64.getEncoder().encodeToString(bytes));
    }

    private static File file(JsonNode asked) {
        return new File(asked.get("file").asText());
    }

    private static LogDirFailureChannel channel() {
        return new LogDirFailureChannel(10);
    }

    private static void named(TopicPartition partition, ObjectNode answer) {
        answer.put("topic", partition.topic()).put("partition", partition.partition());
    }

    private static void names(JsonNode asked, ObjectNode answer) {
        TopicPartition partition = new TopicPartition(asked.get("topic").asText(), asked.get("partition").asInt());
        answer.put("current", LocalLog.logDirName(partition)).put("delete", LocalLog.logDeleteDirName(partition));
        answer.put("stray", LocalLog.logStrayDirName(partition)).put("future", LocalLog.logFutureDirName(partition));
    }

    /** Reads the file; or writes what is given, by the class itself. */
    private static void offsets(JsonNode asked, ObjectNode answer) throws Exception {
        OffsetCheckpointFile checkpoint = new OffsetCheckpointFile(file(asked), channel());
        if (asked.has("entries")) {
            Map<TopicPartition, Long> entries = new HashMap<>();
            asked.get("entries").forEach(e -> entries.put(new TopicPartition(e.get(0).asText(), e.get(1).asInt()), e.get(2).asLong()));
            checkpoint.write(entries);
        }
        ArrayNode found = answer.putArray("entries");
        checkpoint.read().forEach((p, offset) -> found.addArray().add(p.topic()).add(p.partition()).add(offset));
    }

    /** The epochs of a file, the end of each epoch that is asked for in a log with that end, and the epoch of offsets. */
    private static void epochs(JsonNode asked, ObjectNode answer) throws Exception {
        LeaderEpochCheckpointFile checkpoint = new LeaderEpochCheckpointFile(file(asked), channel());
        LeaderEpochFileCache cache = new LeaderEpochFileCache(new TopicPartition("t", 0), checkpoint, SCHEDULER);
        entries(cache.epochEntries(), answer.putArray("epochs"));
        ArrayNode ends = answer.putArray("ends");
        for (JsonNode epoch : asked.get("asked")) {
            Map.Entry<Integer, Long> end = cache.endOffsetFor(epoch.asInt(), asked.get("log_end").asLong());
            ends.addArray().add(end.getKey()).add(end.getValue());
        }
        ArrayNode at = answer.putArray("at");
        for (JsonNode offset : asked.get("offsets")) {
            at.add(cache.epochForOffset(offset.asLong()).orElse(-1));
        }
    }

    private static void entries(List<EpochEntry> entries, ArrayNode into) {
        entries.forEach(e -> into.addArray().add(e.epoch()).add(e.startOffset()));
    }

    private static void meta(JsonNode asked, ObjectNode answer) throws Exception {
        List<String> dirs = new ArrayList<>();
        asked.get("dirs").forEach(dir -> dirs.add(dir.asText()));
        MetaPropertiesEnsemble ensemble = new MetaPropertiesEnsemble.Loader().addLogDirs(dirs).load();
        ArrayNode bad = answer.putArray("errors");
        ensemble.errorLogDirs().forEach(bad::add);
        ArrayNode empty = answer.putArray("empty");
        ensemble.emptyLogDirs().forEach(empty::add);
        ObjectNode read = answer.putObject("read");
        ensemble.logDirProps().forEach((dir, meta) -> {
            ObjectNode one = read.putObject(dir);
            one.put("cluster", meta.clusterId().orElse(null));
            one.put("node", meta.nodeId().isPresent() ? meta.nodeId().getAsInt() : null);
            one.put("directory", meta.directoryId().map(Uuid::toString).orElse(null));
        });
        try {
            OptionalInt node = asked.has("node") ? OptionalInt.of(asked.get("node").asInt()) : OptionalInt.empty();
            ensemble.verify(Optional.empty(), node, EnumSet.noneOf(VerificationFlag.class));
            answer.put("agree", true);
        } catch (RuntimeException refused) {
            answer.put("agree", false);
        }
    }

    private static void tiered(JsonNode asked, ObjectNode answer) {
        LogConfig config = config(asked);
        boolean tiered = UnifiedLog.isRemoteLogEnabled(asked.get("system").asBoolean(), config, asked.get("topic").asText());
        answer.put("tiered", tiered);
        // As `UnifiedLog.deleteOldSegments` asks for them.
        boolean copied = tiered && !config.remoteLogCopyDisable();
        answer.put("ms", UnifiedLog.localRetentionMs(config, copied)).put("bytes", UnifiedLog.localRetentionSize(config, copied));
    }

    private static LogConfig config(JsonNode asked) {
        Properties own = new Properties();
        asked.get("config").properties().forEach(entry -> own.setProperty(entry.getKey(), entry.getValue().asText()));
        return LogConfig.fromProps(Map.of(), own);
    }

    private static UnifiedLog open(JsonNode asked, boolean clean, long recoveryPoint) throws Exception {
        long now = asked.get("now").asLong();
        Time time = new Time() {
            @Override public long milliseconds() {
                return now;
            }

            @Override public long nanoseconds() {
                return now * 1_000_000;
            }

            @Override public void sleep(long ms) {
                throw new UnsupportedOperationException();
            }

            // Of the interface up to 4.3.
            public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
                throw new UnsupportedOperationException();
            }
        };
        long start = asked.has("log_start") ? asked.get("log_start").asLong() : 0;
        return UnifiedLog.create(new File(asked.get("dir").asText()), config(asked), start, recoveryPoint, SCHEDULER,
            new BrokerTopicStats(), time, 300_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, channel(), clean,
            Optional.empty());
    }

    /** Makes a log: a segment for each list of batches [leader epoch, records, timestamp]. */
    private static void write(JsonNode asked, ObjectNode answer) throws Exception {
        Files.createDirectories(new File(asked.get("dir").asText()).toPath());
        UnifiedLog log = open(asked, true, 0);
        boolean first = true;
        for (JsonNode segment : asked.get("segments")) {
            if (!first) {
                log.roll();
            }
            first = false;
            for (JsonNode batch : segment) {
                SimpleRecord[] records = new SimpleRecord[batch.get(1).asInt()];
                for (int i = 0; i < records.length; i++) {
                    records[i] = new SimpleRecord(batch.get(2).asLong(), null, ("value " + i).getBytes("UTF-8"));
                }
                log.appendAsLeader(MemoryRecords.withRecords(Compression.NONE, records), batch.get(0).asInt());
            }
        }
        log.flush(true);
        described(log, answer);
        log.close();
    }

    private static void described(UnifiedLog log, ObjectNode answer) throws Exception {
        answer.put("start", log.logStartOffset()).put("end", log.logEndOffset());
        entries(log.leaderEpochCache().epochEntries(), answer.putArray("epochs"));
        ArrayNode segments = answer.putArray("segments");
        for (LogSegment segment : log.logSegments()) {
            segments.addArray().add(segment.baseOffset()).add(segment.size()).add(segment.largestTimestamp());
        }
    }

    /** Loads a log; with `high_watermark`, deletes what retention does, until nothing more goes. */
    private static void load(JsonNode asked, ObjectNode answer) throws Exception {
        UnifiedLog log = open(asked, asked.get("clean").asBoolean(), 0);
        described(log, answer);
        ArrayNode files = answer.putArray("files");
        for (String name : new File(asked.get("dir").asText()).list()) {
            files.add(name);
        }
        if (asked.has("replicas")) {
            List<Integer> replicas = new ArrayList<>();
            asked.get("replicas").forEach(node -> replicas.add(node.asInt()));
            answer.put("stray", LogManager.isStrayReplica(replicas, asked.get("node").asInt(), log));
        }
        if (asked.has("high_watermark")) {
            log.updateHighWatermark(asked.get("high_watermark").asLong());
            answer.put("first", log.deleteOldSegments());
            int more = 0;
            for (int deleted = log.deleteOldSegments(); deleted > 0; deleted = log.deleteOldSegments()) {
                more += deleted;
            }
            answer.put("more", more);
            ArrayNode left = answer.putArray("left");
            log.logSegments().forEach(segment -> left.add(segment.baseOffset()));
        }
        log.close();
    }
}
