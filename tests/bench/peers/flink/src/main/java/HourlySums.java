import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.apache.avro.Schema;
import org.apache.avro.SchemaNormalization;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.RichSinkFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * CPU use of each pod in each hour, from a topic that is read to its end: thousandths of a vCPU times
 * microseconds, by the hour in which samples begin. Nothing is joined, priced, deduplicated or archived.
 *
 * <p>usage: HourlySums BROKERS TOPIC pod_usage.avsc OUT.csv SLOTS
 */
public class HourlySums {
    /** Pod, microseconds, amount: samples, and with the hour for the time, sums. */
    static final TypeInformation<Tuple3<String, Long, Long>> TYPE = TypeInformation.of(new TypeHint<>() {});

    public static void main(String[] arguments) throws Exception {
        int slots = Integer.parseInt(arguments[4]);
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(slots, new Configuration());
        env.getConfig().enableObjectReuse();
        KafkaSource<Tuple3<String, Long, Long>> source =
                KafkaSource.<Tuple3<String, Long, Long>>builder()
                        .setBootstrapServers(arguments[0])
                        .setTopics(arguments[1])
                        .setGroupId("flink")
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setBounded(OffsetsInitializer.latest())
                        .setValueOnlyDeserializer(new Samples(Files.readString(Path.of(arguments[2]))))
                        .setProperty("fetch.max.bytes", "8388608")
                        .setProperty("max.partition.fetch.bytes", "4194304")
                        .setProperty("max.poll.records", "10000")
                        .build();
        // A sample is sent when its interval is over: with a bound of minutes some would be dropped.
        WatermarkStrategy<Tuple3<String, Long, Long>> times =
                WatermarkStrategy.<Tuple3<String, Long, Long>>forBoundedOutOfOrderness(Duration.ofHours(1))
                        .withTimestampAssigner((sample, kafka) -> sample.f1 / 1000);
        env.fromSource(source, times, "samples", TYPE)
                .keyBy(sample -> sample.f0)
                .window(TumblingEventTimeWindows.of(Duration.ofHours(1)))
                .aggregate(new Sum(), new Told())
                .returns(TYPE)
                .addSink(new Csv(arguments[3]));
        env.execute();
    }

    /** Reads PodUsage in Avro single-object encoding, field by field; passes over every other event. */
    static class Samples implements DeserializationSchema<Tuple3<String, Long, Long>> {
        private final long fingerprint;
        private transient BinaryDecoder decoder;

        Samples(String schema) {
            fingerprint = SchemaNormalization.parsingFingerprint64(new Schema.Parser().parse(schema));
        }

        @Override
        public void deserialize(byte[] message, Collector<Tuple3<String, Long, Long>> out)
                throws IOException {
            if (ByteBuffer.wrap(message, 2, 8).order(ByteOrder.LITTLE_ENDIAN).getLong() != fingerprint) {
                return;
            }
            decoder = DecoderFactory.get().binaryDecoder(message, 10, message.length - 10, decoder);
            decoder.skipString();
            long time = decoder.readLong();
            String pod = decoder.readString();
            long end = decoder.readLong();
            out.collect(Tuple3.of(pod, time, decoder.readLong() * (end - time)));
        }

        @Override
        public Tuple3<String, Long, Long> deserialize(byte[] message) {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean isEndOfStream(Tuple3<String, Long, Long> next) {
            return false;
        }

        @Override
        public TypeInformation<Tuple3<String, Long, Long>> getProducedType() {
            return TYPE;
        }
    }

    static class Sum implements AggregateFunction<Tuple3<String, Long, Long>, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Tuple3<String, Long, Long> sample, Long sum) {
            return sum + sample.f2;
        }

        @Override
        public Long getResult(Long sum) {
            return sum;
        }

        @Override
        public Long merge(Long one, Long other) {
            return one + other;
        }
    }

    /** Puts the pod and its hour before the sum. */
    static class Told extends ProcessWindowFunction<Long, Tuple3<String, Long, Long>, String, TimeWindow> {
        @Override
        public void process(
                String pod, Context context, Iterable<Long> sums, Collector<Tuple3<String, Long, Long>> out) {
            out.collect(Tuple3.of(pod, context.window().getStart() / 3_600_000, sums.iterator().next()));
        }
    }

    /** One file for each slot, `OUT.csv.SLOT`. */
    static class Csv extends RichSinkFunction<Tuple3<String, Long, Long>> {
        private final String path;
        private transient BufferedWriter file;

        Csv(String path) {
            this.path = path;
        }

        @Override
        public void open(Configuration ignored) throws IOException {
            int slot = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            file = Files.newBufferedWriter(Path.of(path + "." + slot));
        }

        @Override
        public void invoke(Tuple3<String, Long, Long> sum, Context context) throws IOException {
            file.write(sum.f0 + "," + sum.f1 + "," + sum.f2 + "\n");
        }

        @Override
        public void close() throws IOException {
            file.close();
        }
    }
}
