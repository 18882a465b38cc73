import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.channels.FileChannel;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.List;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * What a broker does to a log dir, written after Kafka's Utils.delete, Utils.atomicMoveWithFallback and Utils.flushDir.
 * Prints the CPU and wall seconds of the work itself: a broker's JVM is long since started and warm.
 */
class KafkaWay {
    public static void main(String[] args) throws IOException {
        Path warmUp = Path.of(args[1]);
        Path logDir = Path.of(args[2]);
        run(args[0], warmUp);
        OperatingSystemMXBean system =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = system.getProcessCpuTime();
        long wall = System.nanoTime();
        run(args[0], logDir);
        System.out.println((system.getProcessCpuTime() - cpu) / 1e9 + " " + (System.nanoTime() - wall) / 1e9);
    }

    private static void run(String what, Path logDir) throws IOException {
        List<Path> dirs;
        try (Stream<Path> entries = Files.list(logDir)) {
            dirs = entries.collect(Collectors.toList());
        }
        for (Path dir : dirs) {
            if (what.equals("remove")) {
                delete(dir);
            } else {
                mark(dir);
            }
        }
    }

    private static void mark(Path dir) throws IOException {
        String unique = UUID.randomUUID().toString().replace("-", "");
        Path marked = dir.resolveSibling(dir.getFileName() + "." + unique + "-delete");
        Files.move(dir, marked, StandardCopyOption.ATOMIC_MOVE);
        try (FileChannel parent = FileChannel.open(marked.getParent(), StandardOpenOption.READ)) {
            parent.force(true);
        }
    }

    private static void delete(Path root) throws IOException {
        Files.walkFileTree(root, new SimpleFileVisitor<Path>() {
            @Override
            public FileVisitResult visitFileFailed(Path path, IOException error) throws IOException {
                if (error instanceof NoSuchFileException) {
                    return path.equals(root) ? FileVisitResult.TERMINATE : FileVisitResult.CONTINUE;
                }
                throw error;
            }

            @Override
            public FileVisitResult visitFile(Path path, BasicFileAttributes attributes) throws IOException {
                Files.delete(path);
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult postVisitDirectory(Path path, IOException error) throws IOException {
                if (error != null) {
                    throw error;
                }
                Files.delete(path);
                return FileVisitResult.CONTINUE;
            }
        });
    }
}
