package kafkabus.jms;

import static kafkabus.jms.Bench.KEY;
import static kafkabus.jms.Bench.body;
import static kafkabus.jms.Bench.errorOf;
import static kafkabus.jms.Bench.fails;
import static kafkabus.jms.Bench.failsToCommit;
import static kafkabus.jms.Bench.keyed;
import static kafkabus.jms.Bench.receive;
import static kafkabus.jms.Bench.same;
import static kafkabus.jms.Bench.sameBodies;
import static kafkabus.jms.Bench.want;

import jakarta.jms.BytesMessage;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A refused operation fails the transaction that it is part of. */
final class Refusals {
    private static final Duration AT_ONCE = Duration.ofSeconds(2);
    private static final Duration LOCKS_END = Duration.ofMillis(6_500);

    private Refusals() {
    }

    static Map<String, Program.Check> all() {
        Map<String, Program.Check> checks = new LinkedHashMap<>();
        checks.put("refused-key-missing", bench -> refused(bench, session -> List.of(session.createTextMessage("out"))));
        checks.put("refused-keys-differ", bench -> refused(bench,
            session -> List.of(keyed(session, "one", "out 1"), keyed(session, "two", "out 2"))));
        checks.put("refused-too-large", bench -> refused(bench, session -> List.of(large(session))));
        checks.put("refused-session-missing",
            bench -> refused(bench, session -> List.of(session.createTextMessage("out"))));
        checks.put("refused-one-of-many", bench -> refused(bench, session -> List.of(
            keyed(session, KEY, "out 1"), session.createTextMessage("out 2"), keyed(session, KEY, "out 3"))));
        checks.put("refused-disabled", Refusals::disabled);
        checks.put("refused-unknown", Refusals::unknown);
        checks.put("refused-lock-lost", Refusals::lockLost);
        return checks;
    }

    /** Makes the messages that are sent. */
    private interface Output {
        List<Message> of(Session session) throws JMSException;
    }

    private static Message large(Session session) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(new byte[1_100_000]);
        message.setStringProperty("JMSXGroupID", KEY);
        return message;
    }

    /** Receives, sends what is refused, and commits: that fails, the input is there again, and there is no output. */
    private static void refused(Bench bench, Output output) throws Exception {
        bench.send(bench.entity, List.of("in"));
        Session session = bench.transacted();
        MessageConsumer consumer = session.createConsumer(session.createQueue(bench.entity));
        MessageProducer producer = session.createProducer(session.createQueue(bench.entity + "-2"));
        same(body(receive(consumer)), "in", "body");
        for (Message message : output.of(session)) {
            producer.send(message);
        }
        failsToCommit(session);
        Message again = receive(consumer, AT_ONCE);
        same(body(again), "in", "body after the failed commit");
        same(again.getIntProperty("JMSXDeliveryCount"), 2, "delivery count after the failed commit");
        session.commit();
        session.close();
        sameBodies(bench.drain(bench.entity), List.of(), "what is left of the input");
        noOutput(bench);
    }

    /** A queue with sessions shows none to a consumer without, so it is left out. */
    private static void noOutput(Bench bench) throws JMSException {
        Exception refused = errorOf(() -> sameBodies(bench.drain(bench.entity + "-2"), List.of(), "what was stored"));
        want(refused == null || bench.entity.endsWith("session-missing"), "the output: " + refused);
    }

    /** The client learns it when it opens its producer, when it sends or when it commits: but it learns it. */
    private static void disabled(Bench bench) throws Exception {
        bench.send(bench.entity, List.of("in"));
        Session session = bench.transacted();
        MessageConsumer consumer = session.createConsumer(session.createQueue(bench.entity));
        same(body(receive(consumer)), "in", "body");
        fails(JMSException.class, "sending to a disabled queue", () -> {
            session.createProducer(session.createQueue(bench.entity + "-2")).send(keyed(session, KEY, "out"));
            session.commit();
        });
        errorOf(session::rollback);
        same(body(receive(consumer, AT_ONCE)), "in", "body after the failure");
        session.commit();
        session.close();
        sameBodies(bench.drain(bench.entity), List.of(), "what is left of the input");
        noOutput(bench);
    }

    private static void unknown(Bench bench) throws Exception {
        bench.send(bench.entity, List.of("in"));
        Session session = bench.transacted();
        MessageConsumer consumer = session.createConsumer(session.createQueue(bench.entity));
        same(body(receive(consumer)), "in", "body");
        fails(JMSException.class, "sending to an unknown queue",
            () -> session.createProducer(session.createQueue(bench.entity + "-none")).send(keyed(session, KEY, "out")));
        session.rollback();
        same(body(receive(consumer, AT_ONCE)), "in", "body after the rollback");
        session.commit();
        session.close();
        sameBodies(bench.drain(bench.entity), List.of(), "what is left");
    }

    private static void lockLost(Bench bench) throws Exception {
        bench.send(bench.entity, List.of("in"));
        Session session = bench.transacted();
        MessageConsumer consumer = session.createConsumer(session.createQueue(bench.entity));
        MessageProducer producer = session.createProducer(session.createQueue(bench.entity + "-2"));
        same(body(receive(consumer)), "in", "body");
        Thread.sleep(LOCKS_END.toMillis());
        producer.send(keyed(session, KEY, "out"));
        failsToCommit(session);
        session.close();
        sameBodies(bench.drain(bench.entity, LOCKS_END), List.of("in"), "what came again");
        sameBodies(bench.drain(bench.entity + "-2"), List.of(), "what was stored");
    }
}
