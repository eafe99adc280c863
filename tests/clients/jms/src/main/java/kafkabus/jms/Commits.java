package kafkabus.jms;

import static kafkabus.jms.Bench.KEY;
import static kafkabus.jms.Bench.body;
import static kafkabus.jms.Bench.describe;
import static kafkabus.jms.Bench.isRolledBack;
import static kafkabus.jms.Bench.keyed;
import static kafkabus.jms.Bench.receive;
import static kafkabus.jms.Bench.same;
import static kafkabus.jms.Bench.sameBodies;
import static kafkabus.jms.Bench.want;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageListener;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;

import org.springframework.jms.listener.DefaultMessageListenerContainer;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** What a client wrote before its commit belongs to it; a rollback leaves nothing. */
final class Commits {
    /** Longer than a description of an entity is kept without a look whether it changed. */
    private static final Duration OLD = Duration.ofMillis(5_500);
    /** Longer than that after the last look at one that nobody uses: others' receivers look at all that were used lately. */
    private static final Duration UNUSED = Duration.ofMillis(15_500);
    /** Longer than the locks of queues with short ones. */
    private static final Duration LOCKS_END = Duration.ofMillis(6_500);
    /** Longer than the locks of queues whose clients have some work to do. */
    private static final Duration LONGER_LOCKS_END = Duration.ofMillis(11_500);
    /** How soon a message is there again that a rollback gives back. */
    private static final Duration AT_ONCE = Duration.ofSeconds(2);

    private Commits() {
    }

    static Map<String, Program.Check> all() {
        Map<String, Program.Check> checks = new LinkedHashMap<>();
        checks.put("transacted-slow-sends", Commits::slowSends);
        checks.put("transacted-quick-sends", Commits::quickSends);
        checks.put("transacted-many-sends", Commits::manySends);
        checks.put("transacted-forwarding", Commits::forwarding);
        checks.put("transacted-accepts", Commits::accepts);
        checks.put("transacted-slow-accepts", Commits::slowAccepts);
        checks.put("transacted-many-accepts", Commits::manyAccepts);
        checks.put("transacted-rollback", Commits::rollback);
        checks.put("transacted-rollback-sends", Commits::rollbackSends);
        checks.put("transacted-close", Commits::close);
        checks.put("spring-listener", Commits::listener);
        checks.put("spring-listener-retry", Commits::listenerRetry);
        return checks;
    }

    static List<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(number -> String.format("%03d", number)).collect(Collectors.toList());
    }

    private static void commitEach(Bench bench, Session session, int count, Duration pause) throws Exception {
        MessageProducer producer = session.createProducer(session.createQueue(bench.entity));
        for (String body : numbers(count)) {
            Thread.sleep(pause.toMillis());
            producer.send(keyed(session, KEY, body));
            session.commit();
        }
        sameBodies(bench.drain(bench.entity), numbers(count), "what was stored");
    }

    /** The gateway looks at the queue anew, after a pause, while it has the commit already. */
    private static void slowSends(Bench bench) throws Exception {
        Bundler network = bench.closing(new Bundler(Bench.address()));
        Session session = bench.connect(network.address()).createSession(true, Session.SESSION_TRANSACTED);
        commitEach(bench, session, 2, UNUSED);
    }

    private static void quickSends(Bench bench) throws Exception {
        commitEach(bench, bench.transacted(), 60, Duration.ofMillis(100));
    }

    /** Many messages in each of some transactions, which follow each other without a pause. */
    private static void manySends(Bench bench) throws Exception {
        Session session = bench.transacted();
        MessageProducer producer = session.createProducer(session.createQueue(bench.entity));
        for (String body : numbers(200)) {
            producer.send(keyed(session, KEY, body));
            if (body.endsWith("9")) {
                session.commit();
            }
        }
        sameBodies(bench.drain(bench.entity), numbers(200), "what was stored");
    }

    private static void forwarding(Bench bench) throws Exception {
        bench.send(bench.entity, numbers(100));
        Session session = bench.transacted();
        MessageConsumer consumer = session.createConsumer(session.createQueue(bench.entity));
        MessageProducer producer = session.createProducer(session.createQueue(bench.entity + "-2"));
        int rolledBack = 0;
        for (Message message = receive(consumer); message != null;
            message = consumer.receive(LONGER_LOCKS_END.toMillis())) {
            producer.send(keyed(session, KEY, body(message)));
            try {
                session.commit();
            } catch (JMSException lockLost) {
                want(isRolledBack(lockLost), describe(lockLost));
                rolledBack++;
            }
        }
        session.close();
        sameBodies(bench.drain(bench.entity + "-2"), numbers(100), "what was forwarded (" + rolledBack + " rolled back)");
        sameBodies(bench.drain(bench.entity, LONGER_LOCKS_END), List.of(), "what is left");
    }

    /** Receives messages, waits, commits, and fails if one comes again. */
    private static void accept(Bench bench, int count, Duration work, Duration locksEnd) throws Exception {
        bench.send(bench.entity, numbers(count));
        Bundler network = bench.closing(new Bundler(Bench.address()));
        Session session = bench.connect(network.address()).createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(session.createQueue(bench.entity));
        for (int index = 0; index < count; index++) {
            receive(consumer);
        }
        Thread.sleep(work.toMillis());
        session.commit();
        session.close();
        sameBodies(bench.drain(bench.entity, locksEnd), List.of(), "what came again after the commit");
    }

    private static void accepts(Bench bench) throws Exception {
        accept(bench, 3, Duration.ZERO, LOCKS_END);
    }

    private static void slowAccepts(Bench bench) throws Exception {
        accept(bench, 3, OLD, LONGER_LOCKS_END);
    }

    private static void manyAccepts(Bench bench) throws Exception {
        accept(bench, 200, Duration.ZERO, LONGER_LOCKS_END);
    }

    private static void rollback(Bench bench) throws Exception {
        bench.send(bench.entity, List.of("one"));
        Session session = bench.transacted();
        MessageConsumer consumer = session.createConsumer(session.createQueue(bench.entity));
        for (int delivery = 1; delivery <= 3; delivery++) {
            Message message = receive(consumer, delivery == 1 ? Bench.PATIENCE : AT_ONCE);
            same(message.getIntProperty("JMSXDeliveryCount"), delivery, "delivery count");
            session.rollback();
        }
        // Another client has it as well as this one.
        session.close();
        Session other = bench.transacted();
        Message message = receive(other.createConsumer(other.createQueue(bench.entity)), AT_ONCE);
        same(message.getIntProperty("JMSXDeliveryCount"), 4, "delivery count for another client");
        other.commit();
        other.close();
        sameBodies(bench.drain(bench.entity), List.of(), "what is left");
    }

    private static void rollbackSends(Bench bench) throws Exception {
        Session session = bench.transacted();
        MessageProducer producer = session.createProducer(session.createQueue(bench.entity));
        producer.send(keyed(session, KEY, "rolled back"));
        session.rollback();
        producer.send(keyed(session, KEY, "committed"));
        session.commit();
        sameBodies(bench.drain(bench.entity), List.of("committed"), "what was stored");
    }

    /** A connection that is closed without a commit leaves nothing; what was received comes again. */
    private static void close(Bench bench) throws Exception {
        bench.send(bench.entity, List.of("in"));
        try (Connection connection = Bench.factory(Bench.address()).createConnection()) {
            connection.start();
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            receive(session.createConsumer(session.createQueue(bench.entity)));
            session.createProducer(session.createQueue(bench.entity + "-2")).send(keyed(session, KEY, "out"));
        }
        sameBodies(bench.drain(bench.entity, LOCKS_END), List.of("in"), "what came again");
        sameBodies(bench.drain(bench.entity + "-2"), List.of(), "what was stored");
    }

    /** Runs Spring's listener, transacted as by default, until nothing came for a time; returns how often it had each message. */
    private static Map<String, Integer> listen(Bench bench, int count, boolean failFirst) throws Exception {
        bench.send(bench.entity, numbers(count));
        Map<String, Integer> runs = new ConcurrentHashMap<>();
        long[] last = {System.nanoTime()};
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setConnectionFactory(Bench.factory(Bench.address()));
        container.setDestinationName(bench.entity);
        container.setSessionTransacted(true);
        container.setMessageListener((MessageListener) message -> {
            int run;
            try {
                run = runs.merge(body(message), 1, Integer::sum);
            } catch (JMSException error) {
                throw new IllegalStateException(error);
            }
            last[0] = System.nanoTime();
            if (failFirst && run == 1) {
                throw new IllegalStateException("the first run fails");
            }
        });
        container.setErrorHandler(error -> { });
        container.afterPropertiesSet();
        container.start();
        try {
            while (System.nanoTime() - last[0] < LONGER_LOCKS_END.toNanos()) {
                Thread.sleep(100);
            }
        } finally {
            container.shutdown();
        }
        return new TreeMap<>(runs);
    }

    private static Map<String, Integer> each(int count, int runs) {
        return new TreeMap<>(numbers(count).stream().collect(Collectors.toMap(body -> body, body -> runs)));
    }

    private static void listener(Bench bench) throws Exception {
        same(listen(bench, 20, false), each(20, 1), "runs");
        nothingLeft(bench);
    }

    private static void listenerRetry(Bench bench) throws Exception {
        same(listen(bench, 20, true), each(20, 2), "runs");
        nothingLeft(bench);
    }

    private static void nothingLeft(Bench bench) throws JMSException {
        want(bench.drain(bench.entity + "/$deadletterqueue").isEmpty(), "a message was dead-lettered");
        sameBodies(bench.drain(bench.entity, LONGER_LOCKS_END), List.of(), "what is left");
    }
}
