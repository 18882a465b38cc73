import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.metadata.AbortTransactionRecord;
import org.apache.kafka.common.metadata.BeginTransactionRecord;
import org.apache.kafka.common.metadata.EndTransactionRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.MetadataRecordSerde;

/** Reads the values of metadata records, one a line in hex; writes the image that this Kafka makes of them. */
public final class ImageOfRecords {
    public static void main(String[] args) throws Exception {
        MetadataRecordSerde serde = new MetadataRecordSerde();
        MetadataImage image = MetadataImage.EMPTY;
        List<ApiMessage> held = null;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            byte[] value = HexFormat.of().parseHex(line);
            ApiMessage record = serde.read(new ByteBufferAccessor(ByteBuffer.wrap(value)), value.length).message();
            if (record instanceof BeginTransactionRecord) {
                held = new ArrayList<>();
            } else if (record instanceof AbortTransactionRecord) {
                held = null;
            } else if (record instanceof EndTransactionRecord) {
                image = with(image, held);
                held = null;
            } else if (held != null) {
                held.add(record);
            } else {
                image = with(image, List.of(record));
            }
        }
        var ids = new TreeMap<String, org.apache.kafka.image.TopicImage>();
        image.topics().topicsById().forEach((id, topic) -> ids.put(id.toString(), topic));
        ids.forEach((id, topic) -> new TreeMap<>(topic.partitions()).forEach((number, p) -> System.out.println(
            String.join(" ", "partition", id, topic.name(), number.toString(), list(p.replicas), list(p.isr),
                list(p.addingReplicas), list(p.removingReplicas), list(p.elr), Integer.toString(p.leader),
                Stream.of(p.directories).map(Object::toString).collect(Collectors.joining(","))).trim())));
        new TreeMap<>(image.cluster().brokers()).forEach((id, broker) -> System.out.println(
            String.join(" ", "broker", id.toString(), Long.toString(broker.epoch()), Boolean.toString(broker.fenced()),
                broker.incarnationId().toString(),
                broker.directories().stream().map(Object::toString).collect(Collectors.joining(","))).trim()));
    }

    private static MetadataImage with(MetadataImage image, List<ApiMessage> records) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        records.forEach(delta::replay);
        return delta.apply(MetadataProvenance.EMPTY);
    }

    private static String list(int[] nodes) {
        return nodes.length == 0 ? "-" : Arrays.stream(nodes).mapToObj(Integer::toString).collect(Collectors.joining(","));
    }
}
