package kafkabus.clients;

import com.azure.json.JsonProviders;
import com.azure.json.JsonWriter;

import java.io.IOException;
import java.io.StringWriter;

/** Lines of JSON. */
final class Json {
    private Json() {
    }

    /** Prints a value, made of maps, lists, texts, numbers and truth values, as a line of JSON. */
    static synchronized void say(Object value) {
        StringWriter text = new StringWriter();
        try (JsonWriter writer = JsonProviders.createWriter(text)) {
            writer.writeUntyped(value);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
        System.out.println(text);
        System.out.flush();
    }
}
