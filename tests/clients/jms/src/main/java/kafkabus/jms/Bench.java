package kafkabus.jms;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.TransactionRolledBackException;

import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsTransactionInDoubtException;

import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;

/** The things that a check works with. Whatever it opens is closed after it. */
final class Bench implements AutoCloseable {
    static final Duration PATIENCE = Duration.ofSeconds(20);
    static final Duration SILENCE = Duration.ofSeconds(2);
    /** The key of messages to partitioned queues, if all may have the same. */
    static final String KEY = "key";

    /** The name of the check's queue. */
    final String entity;
    private final List<AutoCloseable> open = new ArrayList<>();

    Bench(String entity) {
        this.entity = entity;
    }

    /** Something is not as the check wants it. */
    static final class CheckFailure extends RuntimeException {
        private static final long serialVersionUID = 1L;

        CheckFailure(String message) {
            super(message);
        }
    }

    /** Work that may fail. */
    interface Work {
        void run() throws Exception;
    }

    /** Fails with a message unless a condition holds. */
    static void want(boolean condition, String message) {
        if (!condition) {
            throw new CheckFailure(message);
        }
    }

    /** Fails unless lists have the same elements in any order. */
    static void sameBodies(List<String> got, List<String> wanted, String what) {
        List<String> missing = new ArrayList<>(wanted);
        List<String> more = new ArrayList<>();
        for (String body : got) {
            if (!missing.remove(body)) {
                more.add(body);
            }
        }
        want(missing.isEmpty() && more.isEmpty(), what + ": " + got.size() + " instead of " + wanted.size()
            + ", missing " + missing + ", too many " + more);
    }

    /** Fails unless two things are equal. */
    static void same(Object got, Object wanted, String what) {
        want(Objects.equals(got, wanted), what + " is " + got + " instead of " + wanted);
    }

    /** Returns the error with which work fails; null if it does not. */
    static Exception errorOf(Work work) {
        try {
            work.run();
            return null;
        } catch (CheckFailure failure) {
            throw failure;
        } catch (Exception error) {
            return error;
        }
    }

    /** Fails unless work fails with an error of a kind, and returns that. */
    static <E extends Exception> E fails(Class<E> kind, String what, Work work) {
        Exception error = errorOf(work);
        want(error != null, what + " succeeded instead of failing with " + kind.getSimpleName());
        want(kind.isInstance(error), what + " failed with " + describe(error) + " instead of " + kind.getSimpleName());
        return kind.cast(error);
    }

    /** Returns an error with its causes. */
    static String describe(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            text.append(text.isEmpty() ? "" : "; because of ").append(cause.getClass().getSimpleName());
            text.append(": ").append(cause.getMessage());
        }
        return text.toString();
    }

    /**
     * Fails unless a commit fails because the transaction was rolled back.
     *
     * <p>Qpid JMS takes the condition of a rollback for a transaction in doubt, and any other for a rollback.
     */
    static void failsToCommit(Session session) {
        Exception error = errorOf(session::commit);
        want(error != null, "the commit succeeded instead of failing");
        want(isRolledBack(error), "the commit failed with " + describe(error));
    }

    /** Returns whether an error of a commit says that nothing was done. */
    static boolean isRolledBack(Exception error) {
        return error instanceof TransactionRolledBackException || error instanceof JmsTransactionInDoubtException;
    }

    private static Map<String, String> settings() {
        Map<String, String> settings = new TreeMap<>();
        for (String part : System.getenv("CONNECTION_STRING").split(";")) {
            String[] pair = part.split("=", 2);
            settings.put(pair[0], pair.length < 2 ? "" : pair[1]);
        }
        return settings;
    }

    /** Returns the address of the gateway: its host and its port. */
    static String address() {
        URI endpoint = URI.create(settings().get("Endpoint"));
        return "amqp://" + endpoint.getHost() + ":" + (endpoint.getPort() < 0 ? 5672 : endpoint.getPort());
    }

    /** Returns a factory of connections with an address, and the defaults for everything else. */
    static JmsConnectionFactory factory(String address) {
        Map<String, String> settings = settings();
        return new JmsConnectionFactory(
            settings.get("SharedAccessKeyName"), settings.get("SharedAccessKey"), address);
    }

    <T extends AutoCloseable> T closing(T client) {
        open.add(client);
        return client;
    }

    /** Returns a connection that delivers. */
    Connection connect() throws JMSException {
        return connect(address());
    }

    Connection connect(String address) throws JMSException {
        Connection connection = closing(factory(address).createConnection());
        connection.start();
        return connection;
    }

    /** Returns a transacted session on a connection of its own. */
    Session transacted() throws JMSException {
        return connect().createSession(true, Session.SESSION_TRANSACTED);
    }

    /** Returns a session that acknowledges each message when it is received, on a connection of its own. */
    Session plain() throws JMSException {
        return connect().createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    /** Returns a text with a key. */
    static TextMessage keyed(Session session, String key, String body) throws JMSException {
        TextMessage message = session.createTextMessage(body);
        message.setStringProperty("JMSXGroupID", key);
        return message;
    }

    /** Sends texts to a queue, and waits until they are stored. */
    void send(String queue, Iterable<String> bodies) throws JMSException {
        Session session = plain();
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        for (String body : bodies) {
            producer.send(keyed(session, KEY, body));
        }
    }

    /** Returns the body of a message, or how long it is. */
    static String body(Message message) throws JMSException {
        if (message instanceof TextMessage text) {
            return text.getText();
        }
        return ((BytesMessage) message).getBodyLength() + " bytes";
    }

    /** Returns the next message, or fails. */
    static Message receive(MessageConsumer consumer) throws JMSException {
        return receive(consumer, PATIENCE);
    }

    /** Returns the next message, or fails if it does not come in a time. */
    static Message receive(MessageConsumer consumer, Duration within) throws JMSException {
        Message message = consumer.receive(within.toMillis());
        want(message != null, "no message came in " + within);
        return message;
    }

    /** Receives from a queue until nothing comes for a time; returns the bodies in order of their texts. */
    List<String> drain(String queue, Duration silence) throws JMSException {
        Session session = plain();
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        List<String> bodies = new ArrayList<>();
        for (Message message = consumer.receive(silence.toMillis()); message != null;
            message = consumer.receive(silence.toMillis())) {
            bodies.add(body(message));
        }
        session.close();
        bodies.sort(null);
        return bodies;
    }

    List<String> drain(String queue) throws JMSException {
        return drain(queue, SILENCE);
    }

    @Override
    public void close() throws Exception {
        for (int index = open.size() - 1; index >= 0; index--) {
            open.get(index).close();
        }
    }
}
