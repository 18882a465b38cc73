import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/** For each line of standard input (base64 of a JAAS configuration): what Kafka reads in it, in base64 words. */
public class JaasAnswers {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in, StandardCharsets.US_ASCII);
        while (lines.hasNextLine()) {
            System.out.println(answer(decode(lines.nextLine())));
        }
    }

    private static String answer(String text) {
        try {
            JaasContext context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text)));
            AppConfigurationEntry entry = context.configurationEntries().get(0);
            StringBuilder out = new StringBuilder("ok ").append(encode(entry.getLoginModuleName()));
            new TreeMap<String, Object>(entry.getOptions()).forEach(
                (key, value) -> out.append(' ').append(encode(key)).append('=').append(encode((String) value)));
            return out.toString();
        } catch (RuntimeException refused) {
            return "refused";
        }
    }

    private static String encode(String text) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String decode(String text) {
        return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }
}
