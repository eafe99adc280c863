package kafkabus.jms;

import static kafkabus.jms.Bench.body;
import static kafkabus.jms.Bench.fails;
import static kafkabus.jms.Bench.sameBodies;
import static kafkabus.jms.Bench.want;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;

import org.apache.qpid.jms.JmsConnectionFactory;

import java.util.ArrayList;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Links do what they promise. */
final class Links {
    private Links() {
    }

    static Map<String, Program.Check> all() {
        Map<String, Program.Check> checks = new LinkedHashMap<>();
        checks.put("browse", Links::browse);
        checks.put("browse-selector", Links::browseSelector);
        checks.put("selector", Links::selector);
        checks.put("no-local", Links::noLocal);
        checks.put("durable-subscriber", Links::durableSubscriber);
        checks.put("temporary-queue", Links::temporaryQueue);
        checks.put("receive-briefly", Links::receiveBriefly);
        return checks;
    }

    private static List<String> browsed(QueueBrowser browser) throws JMSException {
        List<String> bodies = new ArrayList<>();
        for (Enumeration<?> messages = browser.getEnumeration(); messages.hasMoreElements();) {
            bodies.add(body((Message) messages.nextElement()));
        }
        bodies.sort(null);
        return bodies;
    }

    private static void browse(Bench bench) throws Exception {
        bench.send(bench.entity, Commits.numbers(40));
        Session session = bench.plain();
        QueueBrowser browser = session.createBrowser(session.createQueue(bench.entity));
        sameBodies(browsed(browser), Commits.numbers(40), "what was browsed");
        sameBodies(browsed(browser), Commits.numbers(40), "what was browsed a second time");
        session.close();
        sameBodies(bench.drain(bench.entity), Commits.numbers(40), "what is left");
    }

    private static void browseSelector(Bench bench) throws Exception {
        bench.send(bench.entity, Commits.numbers(5));
        Session session = bench.plain();
        fails(JMSException.class, "a browser with a selector",
            () -> browsed(session.createBrowser(session.createQueue(bench.entity), "colour = 'red'")));
        sameBodies(bench.drain(bench.entity), Commits.numbers(5), "what is left");
    }

    private static void selector(Bench bench) throws Exception {
        bench.send(bench.entity, Commits.numbers(30));
        Session session = bench.plain();
        fails(JMSException.class, "a consumer with a selector",
            () -> session.createConsumer(session.createQueue(bench.entity), "colour = 'red'"));
        // The connection goes on.
        sameBodies(bench.drain(bench.entity), Commits.numbers(30), "what is left");
        session.createConsumer(session.createQueue(bench.entity)).close();
    }

    private static void noLocal(Bench bench) throws Exception {
        bench.send(bench.entity, Commits.numbers(5));
        Session session = bench.plain();
        // JMS lets a client ask for it with a queue, and the provider ignore it there: but it must not say that it heeds it.
        fails(JMSException.class, "a consumer of others' messages",
            () -> session.createConsumer(session.createQueue(bench.entity), null, true));
        sameBodies(bench.drain(bench.entity), Commits.numbers(5), "what is left");
    }

    /** A durable subscriber settles its subscription's messages; Qpid JMS asks for copies of the topic's. */
    private static void durableSubscriber(Bench bench) throws Exception {
        String subscription = bench.entity + "/subscriptions/all";
        Session sending = bench.plain();
        MessageProducer producer = sending.createProducer(sending.createTopic(bench.entity));
        for (boolean transacted : new boolean[] {false, true}) {
            for (String body : Commits.numbers(5)) {
                producer.send(Bench.keyed(sending, Bench.KEY, body));
            }
            JmsConnectionFactory factory = Bench.factory(Bench.address());
            factory.setClientID("subscriber");
            try (Connection connection = factory.createConnection()) {
                connection.start();
                Session session = connection.createSession(
                    transacted, transacted ? Session.SESSION_TRANSACTED : Session.AUTO_ACKNOWLEDGE);
                MessageConsumer consumer = session.createDurableSubscriber(session.createTopic(subscription), "mine");
                List<String> received = new ArrayList<>();
                while (received.size() < 5) {
                    Message message = consumer.receive(Bench.PATIENCE.toMillis());
                    want(message != null, "only " + received + " came");
                    received.add(body(message));
                }
                if (transacted) {
                    session.commit();
                }
                sameBodies(received, Commits.numbers(5), "what came");
            }
            sameBodies(bench.drain(subscription), List.of(), "what is left");
        }
    }

    private static void temporaryQueue(Bench bench) throws Exception {
        Session session = bench.plain();
        JMSException error = fails(JMSException.class, "a temporary queue", session::createTemporaryQueue);
        want(error.getMessage().contains("temporary"), "the error is " + Bench.describe(error));
    }

    /** A receive that ends without a message gives its credit up, which the gateway answers at once, whatever else goes on. */
    private static void receiveBriefly(Bench bench) throws Exception {
        Session sending = bench.plain();
        MessageProducer producer = sending.createProducer(sending.createQueue(bench.entity));
        Session session = bench.plain();
        MessageConsumer consumer = session.createConsumer(session.createQueue(bench.entity));
        List<String> received = new ArrayList<>();
        long longest = 0;
        for (String body : Commits.numbers(60)) {
            producer.send(Bench.keyed(sending, Bench.KEY, body));
            for (long wait = 0; wait < 3; wait++) {
                long began = System.nanoTime();
                Message message = consumer.receive(1 + wait * 7);
                longest = Math.max(longest, System.nanoTime() - began);
                if (message != null) {
                    received.add(body(message));
                }
            }
        }
        session.close();
        received.addAll(bench.drain(bench.entity));
        sameBodies(received, Commits.numbers(60), "what was received");
        Bench.want(longest < Bench.PATIENCE.toNanos(), "a receive took " + longest / 1_000_000 + " ms");
    }
}
