package kafkabus.jms;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;

/** Sends and receives over one connection, while the gateway is stopped and started again. */
final class KeepSending {
    private static final long PAUSE_MS = 100;

    private KeepSending() {
    }

    /** Sends so many messages through Qpid's failover, prints the number of each when it is stored, and receives all. */
    static void run(String queue, int count) throws Exception {
        String address = "failover:(" + Bench.address() + ")?failover.maxReconnectAttempts=600&failover.reconnectDelay=100"
            + "&failover.useReconnectBackOff=false&jms.requestTimeout=20000&jms.sendTimeout=20000";
        try (Connection connection = Bench.factory(address).createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue(queue));
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            for (int number = 0; number < count; number++) {
                producer.send(Bench.keyed(session, Bench.KEY, Integer.toString(number)));
                Program.say("{\"stored\": " + number + "}");
                Thread.sleep(PAUSE_MS);
            }
            for (TextMessage message = next(consumer); message != null; message = next(consumer)) {
                Program.say("{\"received\": " + message.getText() + "}");
            }
        }
    }

    private static TextMessage next(MessageConsumer consumer) throws Exception {
        return (TextMessage) consumer.receive(Bench.SILENCE.toMillis());
    }
}
