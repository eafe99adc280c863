package kafkabus.clients;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder.ServiceBusReceiverClientBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder.ServiceBusSessionReceiverClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/** The things that a check works with. Whatever it opens is closed after it. */
final class Bench implements AutoCloseable {
    static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final Duration SILENCE = Duration.ofSeconds(2);
    private static final Duration TRY = Duration.ofSeconds(10);

    /** The name of the check's queue or topic. */
    final String entity;
    private final List<AutoCloseable> open = new ArrayList<>();

    Bench(String entity) {
        this.entity = entity;
    }

    /** Something is not as the check wants it. */
    static final class CheckFailure extends RuntimeException {
        private static final long serialVersionUID = 1L;

        CheckFailure(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** Fails with a message unless a condition holds. */
    static void want(boolean condition, String message) {
        if (!condition) {
            throw new CheckFailure(message, null);
        }
    }

    /** Fails unless two things are equal. */
    static void same(Object got, Object wanted, String what) {
        want(Objects.equals(got, wanted), what + " is " + got + " instead of " + wanted);
    }

    /** Fails unless work fails for a reason. */
    static void fails(ServiceBusFailureReason reason, Runnable work) {
        Throwable error = errorOf(work, reason.toString());
        want(error instanceof ServiceBusException own && own.getReason() == reason,
            describe(error) + " instead of " + reason);
    }

    /** Fails unless work fails with one of AMQP's conditions, for which the SDK has no reason of its own. */
    static void failsFor(List<String> conditions, Runnable work) {
        Throwable error = errorOf(work, conditions.toString());
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof UnsupportedOperationException && conditions.contains("amqp:not-allowed")) {
                return;
            }
            if (cause instanceof AmqpException amqp && amqp.getErrorCondition() != null
                && conditions.contains(amqp.getErrorCondition().getErrorCondition())) {
                return;
            }
        }
        throw new CheckFailure(describe(error) + " instead of " + conditions, error);
    }

    private static Throwable errorOf(Runnable work, String wanted) {
        try {
            work.run();
        } catch (CheckFailure failure) {
            throw failure;
        } catch (RuntimeException error) {
            return error;
        }
        throw new CheckFailure("no error instead of " + wanted, null);
    }

    /** Returns an error with its reason, its AMQP condition, and its causes. */
    static String describe(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            text.append(text.isEmpty() ? "" : "; because of ").append(cause.getClass().getSimpleName());
            if (cause instanceof ServiceBusException own) {
                text.append(' ').append(own.getReason());
            }
            if (cause instanceof AmqpException amqp) {
                text.append(' ').append(amqp.getErrorCondition());
            }
            text.append(": ").append(cause.getMessage());
        }
        return text.toString();
    }

    /** Returns the builder of a client that gives up early. */
    static ServiceBusClientBuilder builder() {
        return builder(TRY);
    }

    static ServiceBusClientBuilder builder(Duration tryTimeout) {
        AmqpRetryOptions retries = new AmqpRetryOptions().setMaxRetries(1).setDelay(Duration.ofMillis(100))
            .setTryTimeout(tryTimeout);
        return new ServiceBusClientBuilder().connectionString(System.getenv("CONNECTION_STRING"))
            .retryOptions(retries);
    }

    <T extends AutoCloseable> T closing(T client) {
        open.add(client);
        return client;
    }

    ServiceBusSenderClient sender() {
        return closing(builder().sender().queueName(entity).buildClient());
    }

    ServiceBusReceiverClientBuilder receiving() {
        return builder().receiver().queueName(entity).disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO);
    }

    ServiceBusReceiverClient receiver() {
        return closing(receiving().buildClient());
    }

    ServiceBusReceiverClientBuilder subscribing(String subscription) {
        return builder().receiver().topicName(entity).subscriptionName(subscription).disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO);
    }

    ServiceBusReceiverClient subscription(String name) {
        return closing(subscribing(name).buildClient());
    }

    private ServiceBusSessionReceiverClient sessions() {
        return closing(sessions(builder()).queueName(entity).buildClient());
    }

    static ServiceBusSessionReceiverClientBuilder sessions(ServiceBusClientBuilder builder) {
        return builder.sessionReceiver().disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO);
    }

    ServiceBusReceiverClient session(String id) {
        return closing(sessions().acceptSession(id));
    }

    ServiceBusReceiverClient nextSession() {
        return closing(sessions().acceptNextSession());
    }

    /** Sends messages to the check's entity, each by itself. */
    void send(ServiceBusMessage... messages) {
        ServiceBusSenderClient sender = sender();
        for (ServiceBusMessage message : messages) {
            sender.sendMessage(message);
        }
    }

    /** Returns so many messages, or fails. */
    List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> messages = new ArrayList<>();
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (messages.size() < count) {
            Duration left = Duration.ofNanos(end - System.nanoTime());
            want(left.toMillis() > 0, messages.size() + " of " + count + " messages came in " + PATIENCE);
            receiver.receiveMessages(count - messages.size(), left).forEach(messages::add);
        }
        return messages;
    }

    /** Returns one message, or fails. */
    ServiceBusReceivedMessage receiveOne(ServiceBusReceiverClient receiver) {
        return receive(receiver, 1).get(0);
    }

    /** Fails if a message comes. */
    void receiveNothing(ServiceBusReceiverClient receiver) {
        long count = receiver.receiveMessages(1, SILENCE).stream().count();
        want(count == 0, count + " messages came, and none should have");
    }

    /** Completes messages. */
    void complete(ServiceBusReceiverClient receiver, List<ServiceBusReceivedMessage> messages) {
        messages.forEach(receiver::complete);
    }

    /** Fails if the check's queue has a message, in whatever state. */
    void empty() {
        long count = receiver().peekMessages(10).stream().count();
        want(count == 0, count + " messages are left");
    }

    @Override
    public void close() throws Exception {
        for (int index = open.size() - 1; index >= 0; index--) {
            open.get(index).close();
        }
    }
}
