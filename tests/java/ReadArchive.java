import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.avro.file.DataFileReader;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;

/** Reads a lake's archive of events with Apache Avro, every file to its end, dead letters included. */
class ReadArchive {
    /** Key of the checksum of the schema, in hexadecimal. */
    private static final String DIGEST = "prorata.schema.sha256.hex";

    public static void main(String[] arguments) throws Exception {
        List<Path> files;
        try (Stream<Path> found = Files.walk(Path.of(arguments[0]))) {
            files = found.filter(path -> path.toString().endsWith(".avro")).sorted().toList();
        }
        Map<String, Integer> counts = new TreeMap<>();
        int problems = 0;
        for (Path path : files) {
            try {
                read(path.toFile(), counts);
            } catch (Exception error) {
                System.err.println(path + ": " + error);
                problems++;
            }
        }
        System.out.println("Apache Avro for Java: " + files.size() + " files, " + counts);
        boolean started = counts.keySet().stream().anyMatch(name -> name.endsWith("PodStarted"));
        if (!started) {
            System.err.println("no pod starts in the archive");
        }
        System.exit(problems == 0 && started ? 0 : 1);
    }

    private static void read(File file, Map<String, Integer> counts) throws Exception {
        try (DataFileReader<GenericRecord> reader = new DataFileReader<>(file, new GenericDatumReader<>())) {
            String digest = reader.getMetaString(DIGEST);
            if (digest == null || digest.length() != 64) {
                throw new IllegalStateException("its header has no " + DIGEST + ": " + reader.getMetaKeys());
            }
            for (GenericRecord record : reader) {
                counts.merge(record.getSchema().getName(), 1, Integer::sum);
            }
        }
    }
}
