package kafkabus.clients;

import com.azure.core.amqp.models.AmqpAddress;
import com.azure.core.amqp.models.AmqpAnnotatedMessage;
import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.core.amqp.models.AmqpMessageId;
import com.azure.core.amqp.models.AmqpMessageProperties;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import org.apache.qpid.proton.amqp.Binary;
import org.apache.qpid.proton.amqp.DescribedType;
import org.apache.qpid.proton.amqp.Symbol;
import org.apache.qpid.proton.amqp.UnsignedByte;
import org.apache.qpid.proton.amqp.UnsignedInteger;
import org.apache.qpid.proton.amqp.UnsignedLong;
import org.apache.qpid.proton.amqp.UnsignedShort;

import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.function.Consumer;

/**
 * Messages with every type that the Java SDK can write, and messages as the SDK shows them, in canonical form.
 *
 * <p>A value is a pair of its AMQP type and its content. If the SDK does not tell types apart, the first has each of them.
 */
final class MessageTypes {
    private static final UUID IDENTITY = UUID.fromString("00112233-4455-6677-8899-aabbccddeeff");
    private static final Instant INSTANT = Instant.parse("2025-01-02T03:04:05.678Z");
    private static final Map<Class<?>, String> NAMES = Map.ofEntries(
        Map.entry(Byte.class, "byte"), Map.entry(Short.class, "short"), Map.entry(Integer.class, "int"),
        Map.entry(Long.class, "long"), Map.entry(UnsignedByte.class, "ubyte"), Map.entry(UnsignedShort.class, "ushort"),
        Map.entry(UnsignedInteger.class, "uint"), Map.entry(UnsignedLong.class, "ulong"),
        Map.entry(Float.class, "float"), Map.entry(Double.class, "double"), Map.entry(String.class, "string"),
        Map.entry(Symbol.class, "symbol"), Map.entry(Character.class, "char"), Map.entry(UUID.class, "uuid"));

    private MessageTypes() {
    }

    /** Values of all types but characters, which the SDKs of Python and Go cannot read. */
    private static Map<String, Object> values() {
        Map<String, Object> values = new LinkedHashMap<>();
        values.put("null", null);
        values.put("true", true);
        values.put("false", false);
        values.put("byte", (byte) -5);
        values.put("short", (short) -300);
        values.put("int", 5);
        values.put("int-largest", Integer.MAX_VALUE);
        values.put("long", 1L << 40);
        values.put("negative", -7L);
        values.put("long-largest", Long.MAX_VALUE);
        values.put("float", 1.5f);
        values.put("double", 1.5);
        values.put("string", "text ü");
        values.put("string-empty", "");
        values.put("string-long", "x".repeat(300));
        values.put("uuid", IDENTITY);
        values.put("timestamp", Date.from(INSTANT));
        return values;
    }

    private static List<Object> pair(String type, Object content) {
        return Arrays.asList(type, content);
    }

    private static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }

    /** Returns a value in canonical form. */
    private static List<Object> typed(Object value) {
        if (value == null) {
            return pair("null", null);
        }
        if (value instanceof Boolean) {
            return pair("boolean", value);
        }
        if (NAMES.containsKey(value.getClass())) {
            return pair(NAMES.get(value.getClass()), value.toString());
        }
        if (value instanceof Date date) {
            return pair("timestamp", Long.toString(date.getTime()));
        }
        if (value instanceof OffsetDateTime time) {
            return pair("described|timestamp", Long.toString(time.toInstant().toEpochMilli()));
        }
        if (value instanceof URI || value instanceof Duration) {
            return pair("described", value.toString());
        }
        if (value instanceof byte[] bytes) {
            return pair("binary", base64(bytes));
        }
        if (value instanceof Binary binary) {
            return pair("binary",
                base64(Arrays.copyOfRange(binary.getArray(), binary.getArrayOffset(),
                    binary.getArrayOffset() + binary.getLength())));
        }
        return compound(value);
    }

    private static List<Object> compound(Object value) {
        if (value instanceof DescribedType described) {
            return pair("described", List.of(typed(described.getDescriptor()), typed(described.getDescribed())));
        }
        List<Object> items = new ArrayList<>();
        if (value instanceof Map<?, ?> map) {
            map.forEach((key, item) -> items.add(List.of(typed(key), typed(item))));
            return pair("map", items);
        }
        if (value instanceof Iterable<?> list) {
            list.forEach(item -> items.add(typed(item)));
            return pair("array|list", items);
        }
        if (value.getClass().isArray()) {
            for (int index = 0; index < java.lang.reflect.Array.getLength(value); index++) {
                items.add(typed(java.lang.reflect.Array.get(value, index)));
            }
            return pair("array|list", items);
        }
        throw new IllegalArgumentException(value.getClass() + " has no canonical form");
    }

    private static Map<String, Object> section(Map<String, Object> part) {
        Map<String, Object> values = new LinkedHashMap<>();
        part.forEach((key, value) -> values.put(key, typed(value)));
        return values;
    }

    private static Object text(Object value) {
        return value == null ? null : value.toString();
    }

    /** Returns a message with its AMQP sections in canonical form. */
    private static Map<String, Object> canonical(AmqpAnnotatedMessage message) {
        AmqpMessageProperties properties = message.getProperties();
        Map<String, Object> header = new LinkedHashMap<>();
        header.put("durable", message.getHeader().isDurable());
        header.put("priority", message.getHeader().getPriority());
        Duration timeToLive = message.getHeader().getTimeToLive();
        // The gateway tells this SDK of none as the largest one.
        boolean endless = timeToLive == null || timeToLive.isZero() || timeToLive.toMillis() == 0xFFFFFFFFL;
        header.put("ttl", endless ? null : timeToLive.toMillis());
        Map<String, Object> named = new LinkedHashMap<>();
        named.put("message-id", id(properties.getMessageId()));
        named.put("correlation-id", id(properties.getCorrelationId()));
        byte[] user = properties.getUserId();
        named.put("user-id", user == null || user.length == 0 ? null : typed(user));
        named.put("subject", properties.getSubject());
        named.put("content-type", properties.getContentType());
        named.put("content-encoding", properties.getContentEncoding());
        named.put("to", text(properties.getTo()));
        named.put("reply-to", text(properties.getReplyTo()));
        named.put("group-id", properties.getGroupId());
        named.put("reply-to-group-id", properties.getReplyToGroupId());
        Map<String, Object> annotations = section(message.getMessageAnnotations());
        annotations.keySet().removeIf(key -> key.startsWith("x-opt-") && !key.equals("x-opt-partition-key"));
        Map<String, Object> form = new LinkedHashMap<>();
        form.put("id", Objects.toString(properties.getMessageId()));
        form.put("body", body(message.getBody()));
        form.put("header", header);
        form.put("properties", named);
        form.put("application-properties", section(message.getApplicationProperties()));
        form.put("annotations", annotations);
        form.put("footer", section(message.getFooter()));
        return form;
    }

    /** The SDK shows ids of all types as texts. */
    private static Object id(AmqpMessageId id) {
        return id == null ? null : pair("string|ulong|uuid", id.toString());
    }

    private static List<Object> body(AmqpMessageBody body) {
        if (body.getBodyType() == AmqpMessageBodyType.VALUE) {
            return pair("value", typed(body.getValue()));
        }
        if (body.getBodyType() == AmqpMessageBodyType.SEQUENCE) {
            return pair("sequence", List.of(typed(body.getSequence()).get(1)));
        }
        return pair("data", List.of(base64(body.getFirstData())));
    }

    /** Returns messages with every kind of body, and every type of value. */
    private static List<ServiceBusMessage> messages() {
        List<ServiceBusMessage> messages = new ArrayList<>();
        AmqpMessageBody nothing = AmqpMessageBody.fromData(new byte[0]);
        add(messages, "data", AmqpMessageBody.fromData(new byte[] {0, 'b', 'y', 't', 'e', 's', (byte) 255}));
        add(messages, "data-empty", nothing);
        values().forEach((name, value) -> {
            if (value != null) { // the SDK refuses it
                add(messages, "value-" + name, AmqpMessageBody.fromValue(value));
            }
        });
        add(messages, "value-list", AmqpMessageBody.fromValue(Arrays.asList(1, "two", null, List.of(3.5))));
        add(messages, "value-map", AmqpMessageBody.fromValue(Map.of("a", 1, "b", Map.of("c", "d"))));
        add(messages, "sequence", AmqpMessageBody.fromSequence(Arrays.asList(1, "two", null)));
        add(messages, "application-properties", nothing).getApplicationProperties().putAll(values());
        add(messages, "described", nothing).getApplicationProperties().putAll(Map.of(
            "uri", URI.create("https://example.com/a"),
            "duration", Duration.ofMillis(90_061_001),
            "time", OffsetDateTime.ofInstant(INSTANT, ZoneOffset.UTC)));

        AmqpAnnotatedMessage annotated = add(messages, "annotations", nothing).getRawAmqpMessage();
        // The SDK sends no others.
        annotated.getMessageAnnotations().put("x-opt-partition-key", "key");
        annotated.getFooter().put("test-footer", "text");
        annotated.getHeader().setDurable(true).setPriority((short) 7).setTimeToLive(Duration.ofHours(1));

        add(messages, "properties", nothing).getRawAmqpMessage().getProperties()
            .setCorrelationId(new AmqpMessageId("correlation"))
            .setSubject("subject")
            .setContentType("text/plain")
            .setContentEncoding("utf-8")
            .setTo(new AmqpAddress("to"))
            .setReplyTo(new AmqpAddress("reply-to"))
            .setGroupId("group")
            .setReplyToGroupId("reply-to-group")
            .setUserId("user".getBytes(StandardCharsets.UTF_8));
        return messages;
    }

    private static ServiceBusMessage add(List<ServiceBusMessage> messages, String id, AmqpMessageBody body) {
        ServiceBusMessage message = new ServiceBusMessage(body).setMessageId(id);
        messages.add(message);
        return message;
    }

    /** Sends the messages, and prints each in canonical form. */
    static void send(String queue) {
        try (ServiceBusSenderClient sender = Bench.builder().sender().queueName(queue).buildClient()) {
            for (ServiceBusMessage message : messages()) {
                sender.sendMessage(message);
                Json.say(canonical(message.getRawAmqpMessage()));
            }
        }
    }

    /** Receives so many messages, and prints each in canonical form. */
    static void receive(String queue, int count) {
        try (ServiceBusReceiverClient receiver = Bench.builder().receiver().queueName(queue).disableAutoComplete()
            .buildClient()) {
            int[] left = {count};
            Consumer<ServiceBusReceivedMessage> take = message -> {
                Json.say(canonical(message.getRawAmqpMessage()));
                receiver.complete(message);
                left[0]--;
            };
            while (left[0] > 0) {
                int before = left[0];
                receiver.receiveMessages(left[0], Bench.PATIENCE).forEach(take);
                Bench.want(left[0] < before, left[0] + " messages did not come in " + Bench.PATIENCE);
            }
        }
    }
}
