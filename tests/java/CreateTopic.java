import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

/** Creates a topic: `java -cp LIBS CreateTopic.java BROKERS NAME PARTITIONS`. */
public class CreateTopic {
    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            NewTopic topic = new NewTopic(arguments[1], Integer.parseInt(arguments[2]), (short) 1);
            admin.createTopics(List.of(topic)).all().get();
        }
    }
}
