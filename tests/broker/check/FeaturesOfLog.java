import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.metadata.AbortTransactionRecord;
import org.apache.kafka.common.metadata.BeginTransactionRecord;
import org.apache.kafka.common.metadata.EndTransactionRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.util.BatchFileReader;
import org.apache.kafka.server.common.MetadataVersion;

/** Reads a metadata log dir with this Kafka's own classes; writes each finalised feature with its level. */
public final class FeaturesOfLog {
    private static MetadataImage image = MetadataImage.EMPTY;
    private static List<ApiMessage> held = null;
    private static short kraftVersion = 0;

    public static void main(String[] args) throws Exception {
        Path log = Path.of(args[0]);
        List<String> names;
        try (Stream<Path> files = Files.list(log)) {
            names = files.map(file -> file.getFileName().toString()).sorted().collect(Collectors.toList());
        }
        List<String> snapshots = names.stream().filter(name -> name.endsWith(".checkpoint")).collect(Collectors.toList());
        long end = 0;
        if (!snapshots.isEmpty()) {
            String newest = snapshots.get(snapshots.size() - 1);
            end = Long.parseLong(newest.substring(0, 20));
            replay(log.resolve(newest), 0);
        }
        for (String name : names) {
            if (name.matches("\\d{20}\\.log")) {
                replay(log.resolve(name), end);
            }
        }
        TreeMap<String, Short> levels = new TreeMap<>();
        image.features().finalizedVersions().forEach(levels::put);
        Object version = image.features().getClass().getMethod("metadataVersion").invoke(image.features());
        version = version instanceof Optional<?> some ? some.orElse(null) : version;
        levels.put("metadata.version", ((MetadataVersion) version).featureLevel());
        levels.put("kraft.version", kraftVersion);
        for (Map.Entry<String, Short> entry : levels.entrySet()) {
            System.out.println(entry.getKey() + " " + entry.getValue());
        }
    }

    private static void replay(Path file, long from) throws Exception {
        try (BatchFileReader reader = new BatchFileReader.Builder().setPath(file.toString()).build()) {
            while (reader.hasNext()) {
                BatchFileReader.BatchAndType next = reader.next();
                long offset = next.batch().baseOffset();
                for (var record : next.batch().records()) {
                    if (offset++ < from) {
                        continue;
                    }
                    if (!next.isControl()) {
                        replay(record.message());
                    } else if (record.message() instanceof KRaftVersionRecord change) {
                        kraftVersion = change.kRaftVersion();
                    }
                }
            }
        }
    }

    private static void replay(ApiMessage record) {
        if (record instanceof BeginTransactionRecord) {
            held = new ArrayList<>();
        } else if (record instanceof AbortTransactionRecord) {
            held = null;
        } else if (record instanceof EndTransactionRecord) {
            List<ApiMessage> whole = held;
            held = null;
            apply(whole);
        } else if (held != null) {
            held.add(record);
        } else {
            apply(List.of(record));
        }
    }

    private static void apply(List<ApiMessage> records) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        records.forEach(delta::replay);
        image = delta.apply(MetadataProvenance.EMPTY);
    }
}
