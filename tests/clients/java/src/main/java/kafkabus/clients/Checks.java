package kafkabus.clients;

import static kafkabus.clients.Bench.fails;
import static kafkabus.clients.Bench.failsFor;
import static kafkabus.clients.Bench.same;
import static kafkabus.clients.Bench.want;

import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;

import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.StreamSupport;

/** The checks of the Java SDK. */
final class Checks {
    /** A check. */
    interface Check {
        void run(Bench bench) throws Exception;
    }

    private Checks() {
    }

    /** Returns all checks, by name. */
    static Map<String, Check> all() {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("send-one", Checks::sendOne);
        checks.put("send-list", Checks::sendList);
        checks.put("send-batch", Checks::sendBatch);
        checks.put("send-1mb", Checks::send1Mb);
        checks.put("send-too-large", Checks::sendTooLarge);
        checks.put("send-scheduled", Checks::sendScheduled);
        checks.put("receive-complete", Checks::receiveComplete);
        checks.put("receive-empty", Checks::receiveEmpty);
        checks.put("receive-and-delete", Checks::receiveAndDelete);
        checks.put("receive-prefetch", Checks::receivePrefetch);
        checks.put("abandon", Checks::abandon);
        checks.put("abandon-properties", Checks::abandonProperties);
        checks.put("abandon-delay", Checks::abandonDelay);
        checks.put("defer-properties", Checks::deferProperties);
        checks.put("max-delivery-count", Checks::maxDeliveryCount);
        checks.put("defer", Checks::defer);
        checks.put("dead-letter", Checks::deadLetter);
        checks.put("peek", Checks::peek);
        checks.put("schedule", Checks::schedule);
        checks.put("schedule-cancel", Checks::scheduleCancel);
        checks.put("renew-lock", Checks::renewLock);
        checks.put("lock-lost", Checks::lockLost);
        checks.put("processor", Checks::processor);
        checks.put("unknown-queue", Checks::unknownQueue);
        checks.put("unknown-subscription", Checks::unknownSubscription);
        checks.put("session-state", Checks::sessionState);
        checks.put("session-next", Checks::sessionNext);
        checks.put("session-none", Checks::sessionNone);
        checks.put("session-two", Checks::sessionTwo);
        checks.put("session-held", Checks::sessionHeld);
        checks.put("session-defer", Checks::sessionDefer);
        checks.put("session-peek", Checks::sessionPeek);
        checks.put("session-renew-lock", Checks::sessionRenewLock);
        checks.put("session-lock-lost", Checks::sessionLockLost);
        checks.put("session-required", Checks::sessionRequired);
        checks.put("session-unsupported", Checks::sessionUnsupported);
        checks.put("session-missing", Checks::sessionMissing);
        checks.put("session-processor", Checks::sessionProcessor);
        checks.put("topic-all", Checks::topicAll);
        checks.put("topic-rules", Checks::topicRules);
        checks.put("topic-dead-letter", Checks::topicDeadLetter);
        checks.put("topic-session", Checks::topicSession);
        checks.put("rule-manager", Checks::ruleManager);
        checks.put("transaction-commit", Checks::transactionCommit);
        checks.put("transaction-rollback", Checks::transactionRollback);
        checks.put("transaction-two-entities", Checks::transactionTwoEntities);
        checks.put("transaction-two-entities-rollback", Checks::transactionTwoEntitiesRollback);
        checks.putAll(Refusals.all());
        return checks;
    }

    private static ServiceBusMessage message(String body) {
        return new ServiceBusMessage(body);
    }

    private static ServiceBusMessage keyed(String body) {
        return message(body).setPartitionKey("key");
    }

    private static ServiceBusMessage ofSession(String session, String body) {
        return message(body).setSessionId(session);
    }

    private static String text(ServiceBusReceivedMessage message) {
        return message.getBody().toString();
    }

    private static List<String> texts(Iterable<ServiceBusReceivedMessage> messages) {
        return StreamSupport.stream(messages.spliterator(), false).map(Checks::text).collect(Collectors.toList());
    }

    private static List<String> sorted(Iterable<ServiceBusReceivedMessage> messages) {
        return texts(messages).stream().sorted().collect(Collectors.toList());
    }

    private static List<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(number -> String.format("%02d", number)).collect(Collectors.toList());
    }

    private static void sendOne(Bench bench) {
        ServiceBusMessage message = message("one").setMessageId("id-1");
        message.getApplicationProperties().put("colour", "red");
        bench.send(message);
        ServiceBusReceiverClient receiver = bench.receiver();
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        same(text(got), "one", "body");
        same(got.getMessageId(), "id-1", "message id");
        same(got.getDeliveryCount(), 0L, "delivery count");
        want(got.getSequenceNumber() != 0, "no sequence number");
        want(got.getEnqueuedTime() != null, "no enqueued time");
        want(got.getExpiresAt().isAfter(got.getEnqueuedTime().plusDays(1)), "it is shown as expired");
        want(got.getLockedUntil() != null, "no end of the lock");
        want(got.getLockToken() != null, "no lock token");
        same(got.getApplicationProperties(), Map.of("colour", "red"), "application properties");
        receiver.complete(got);
    }

    private static void sendList(Bench bench) {
        bench.sender().sendMessages(numbers(10).stream().map(Checks::message).collect(Collectors.toList()));
        ServiceBusReceiverClient receiver = bench.receiver();
        List<ServiceBusReceivedMessage> messages = bench.receive(receiver, 10);
        same(sorted(messages), numbers(10), "bodies");
        bench.complete(receiver, messages);
    }

    private static void sendBatch(Bench bench) {
        ServiceBusSenderClient sender = bench.sender();
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        for (String body : numbers(50)) {
            want(batch.tryAddMessage(keyed(body)), "the batch is full");
        }
        sender.sendMessages(batch);
        ServiceBusReceiverClient receiver = bench.receiver();
        List<ServiceBusReceivedMessage> messages = bench.receive(receiver, 50);
        same(sorted(messages), numbers(50), "bodies");
        bench.complete(receiver, messages);
    }

    private static void send1Mb(Bench bench) {
        byte[] body = new byte[1_000_000];
        for (int index = 0; index < body.length; index++) {
            body[index] = (byte) (index % 251);
        }
        bench.send(new ServiceBusMessage(BinaryData.fromBytes(body)));
        ServiceBusReceiverClient receiver = bench.receiver();
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        want(Arrays.equals(got.getBody().toBytes(), body), "the body is another");
        receiver.complete(got);
    }

    private static void sendTooLarge(Bench bench) {
        ServiceBusSenderClient sender = bench.sender();
        ServiceBusMessage large = new ServiceBusMessage(new byte[1_100_000]);
        fails(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED, () -> sender.sendMessage(large));
        want(refuses(sender.createMessageBatch(), large), "the batch took it");
        sender.sendMessage(message("small"));
        ServiceBusReceiverClient receiver = bench.receiver();
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        same(text(got), "small", "body");
        receiver.complete(got);
    }

    /** A batch refuses what is larger than itself with an error, and what is more than its rest with an answer. */
    private static boolean refuses(ServiceBusMessageBatch batch, ServiceBusMessage message) {
        try {
            return !batch.tryAddMessage(message);
        } catch (RuntimeException error) {
            return true;
        }
    }

    private static void sendScheduled(Bench bench) {
        OffsetDateTime due = OffsetDateTime.now().plusSeconds(4);
        bench.send(message("later").setScheduledEnqueueTime(due));
        ServiceBusReceiverClient receiver = bench.receiver();
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        same(text(got), "later", "body");
        want(OffsetDateTime.now().isAfter(due.minus(Duration.ofMillis(500))), "the message came too early");
        receiver.complete(got);
    }

    private static void receiveComplete(Bench bench) {
        bench.send(message("1"), message("2"), message("3"));
        ServiceBusReceiverClient receiver = bench.receiver();
        List<ServiceBusReceivedMessage> messages = bench.receive(receiver, 3);
        same(sorted(messages), List.of("1", "2", "3"), "bodies");
        bench.complete(receiver, messages);
        bench.receiveNothing(receiver);
        bench.empty();
    }

    private static void receiveEmpty(Bench bench) {
        ServiceBusReceiverClient receiver = bench.receiver();
        bench.receiveNothing(receiver);
        bench.send(message("one"));
        receiver.complete(bench.receiveOne(receiver));
    }

    private static void receiveAndDelete(Bench bench) {
        bench.send(message("1"), message("2"));
        ServiceBusReceiverClient receiver = bench.closing(
            bench.receiving().receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
        same(sorted(bench.receive(receiver, 2)), List.of("1", "2"), "bodies");
        bench.empty();
    }

    private static void receivePrefetch(Bench bench) {
        bench.send(numbers(30).stream().map(Checks::message).toArray(ServiceBusMessage[]::new));
        ServiceBusReceiverClient receiver = bench.closing(bench.receiving().prefetchCount(20).buildClient());
        List<ServiceBusReceivedMessage> messages = bench.receive(receiver, 30);
        same(sorted(messages), numbers(30), "bodies");
        bench.complete(receiver, messages);
        bench.empty();
    }

    private static void abandon(Bench bench) {
        bench.send(message("one"));
        ServiceBusReceiverClient receiver = bench.receiver();
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        same(got.getDeliveryCount(), 0L, "first delivery count");
        receiver.abandon(got);
        got = bench.receiveOne(receiver);
        same(got.getDeliveryCount(), 1L, "second delivery count");
        receiver.complete(got);
    }

    private static void abandonProperties(Bench bench) {
        ServiceBusMessage message = message("one");
        message.getApplicationProperties().putAll(Map.of("colour", "red", "size", 5));
        bench.send(message);
        ServiceBusReceiverClient receiver = bench.receiver();
        receiver.abandon(bench.receiveOne(receiver),
            new AbandonOptions().setPropertiesToModify(Map.of("colour", "blue", "more", "text")));
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        same(got.getApplicationProperties(), Map.of("colour", "blue", "more", "text", "size", 5),
            "application properties");
        receiver.complete(got);
    }

    private static void abandonDelay(Bench bench) {
        bench.send(message("one"));
        ServiceBusReceiverClient receiver = bench.receiver();
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        long begun = System.nanoTime();
        receiver.abandon(got,
            new AbandonOptions().setPropertiesToModify(Map.of("x-opt-kafkabus-delay", 1500L, "colour", "blue")));
        got = bench.receiveOne(receiver);
        want(System.nanoTime() - begun >= 1_500_000_000L, "the message came too early");
        same(got.getDeliveryCount(), 1L, "delivery count");
        same(got.getApplicationProperties(), Map.of("colour", "blue"), "application properties");
        receiver.complete(got);
    }

    private static void deferProperties(Bench bench) {
        ServiceBusMessage message = message("one");
        message.getApplicationProperties().putAll(Map.of("colour", "red", "size", 5));
        bench.send(message);
        ServiceBusReceiverClient receiver = bench.receiver();
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        receiver.defer(got, new DeferOptions().setPropertiesToModify(Map.of("colour", "blue")));
        ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(got.getSequenceNumber());
        receiver.abandon(deferred, new AbandonOptions().setPropertiesToModify(Map.of("more", "text")));
        deferred = receiver.receiveDeferredMessage(got.getSequenceNumber());
        same(deferred.getApplicationProperties(), Map.of("colour", "blue", "more", "text", "size", 5),
            "application properties");
        receiver.complete(deferred);
    }

    private static ServiceBusReceiverClient deadLetters(Bench bench) {
        return bench.closing(bench.receiving().subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
    }

    private static void maxDeliveryCount(Bench bench) {
        bench.send(message("one"));
        ServiceBusReceiverClient receiver = bench.receiver();
        receiver.abandon(bench.receiveOne(receiver));
        receiver.abandon(bench.receiveOne(receiver));
        ServiceBusReceiverClient dead = deadLetters(bench);
        ServiceBusReceivedMessage got = bench.receiveOne(dead);
        same(got.getDeadLetterReason(), "MaxDeliveryCountExceeded", "reason");
        dead.complete(got);
    }

    private static void defer(Bench bench) {
        bench.send(message("one"));
        ServiceBusReceiverClient receiver = bench.receiver();
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        receiver.defer(got);
        bench.receiveNothing(receiver);
        ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(got.getSequenceNumber());
        same(text(deferred), "one", "body");
        receiver.complete(deferred);
        // The SDK shows an error of this kind as an empty answer.
        same(texts(receiver.receiveDeferredMessageBatch(List.of(got.getSequenceNumber()))), List.of(),
            "bodies that came again");
        bench.empty();
    }

    private static void deadLetter(Bench bench) {
        bench.send(message("one"));
        ServiceBusReceiverClient receiver = bench.receiver();
        receiver.deadLetter(bench.receiveOne(receiver), new DeadLetterOptions().setDeadLetterReason("a reason")
            .setDeadLetterErrorDescription("a description"));
        ServiceBusReceiverClient dead = deadLetters(bench);
        ServiceBusReceivedMessage got = bench.receiveOne(dead);
        same(text(got), "one", "body");
        same(got.getDeadLetterReason(), "a reason", "reason");
        same(got.getDeadLetterErrorDescription(), "a description", "description");
        dead.complete(got);
        bench.receiveNothing(dead);
    }

    private static void peek(Bench bench) {
        bench.send(keyed("1"), keyed("2"), keyed("3"));
        ServiceBusReceiverClient receiver = bench.receiver();
        List<ServiceBusReceivedMessage> peeked = receiver.peekMessages(10).stream().collect(Collectors.toList());
        same(texts(peeked), List.of("1", "2", "3"), "bodies");
        long second = peeked.get(1).getSequenceNumber();
        same(texts(receiver.peekMessages(10, second)), List.of("2", "3"), "bodies from the second on");
        bench.complete(receiver, bench.receive(receiver, 3));
        bench.empty();
    }

    private static void schedule(Bench bench) {
        ServiceBusReceiverClient receiver = bench.receiver();
        OffsetDateTime due = OffsetDateTime.now().plusSeconds(6);
        Long number = bench.sender().scheduleMessage(message("later"), due);
        ServiceBusReceivedMessage peeked = receiver.peekMessage();
        same(peeked.getSequenceNumber(), number, "sequence number");
        same(peeked.getState(), ServiceBusMessageState.SCHEDULED, "state");
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        same(text(got), "later", "body");
        want(OffsetDateTime.now().isAfter(due.minus(Duration.ofMillis(500))), "the message came too early");
        receiver.complete(got);
    }

    private static void scheduleCancel(Bench bench) {
        ServiceBusSenderClient sender = bench.sender();
        List<Long> numbers = new ArrayList<>();
        sender.scheduleMessages(List.of(keyed("a"), keyed("b")), OffsetDateTime.now().plusHours(1))
            .forEach(numbers::add);
        same(numbers.size(), 2, "number of sequence numbers");
        sender.cancelScheduledMessages(numbers);
        bench.empty();
        // The SDK ignores errors of messages that are not there.
        sender.cancelScheduledMessages(numbers);
    }

    private static void renewLock(Bench bench) {
        bench.send(message("one"));
        ServiceBusReceiverClient receiver = bench.receiver();
        ServiceBusReceiverClient other = bench.receiver();
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        OffsetDateTime before = got.getLockedUntil();
        while (OffsetDateTime.now().isBefore(before)) {
            OffsetDateTime renewed = receiver.renewMessageLock(got);
            bench.receiveNothing(other);
            want(renewed.isAfter(before), "the renewed lock does not end later");
        }
        receiver.complete(got);
        bench.empty();
    }

    private static void lockLost(Bench bench) {
        bench.send(message("one"));
        ServiceBusReceiverClient receiver = bench.receiver();
        ServiceBusReceiverClient other = bench.receiver();
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        ServiceBusReceivedMessage again = bench.receiveOne(other);
        same(again.getDeliveryCount(), 1L, "second delivery count");
        fails(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> receiver.complete(got));
        fails(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> receiver.renewMessageLock(got));
        other.complete(again);
    }

    private static void processor(Bench bench) throws InterruptedException {
        bench.send(numbers(10).stream().map(Checks::message).toArray(ServiceBusMessage[]::new));
        BlockingQueue<String> bodies = new LinkedBlockingQueue<>();
        BlockingQueue<Throwable> errors = new LinkedBlockingQueue<>();
        ServiceBusProcessorClient processor = Bench.builder().processor().queueName(bench.entity).maxConcurrentCalls(3)
            .processMessage(context -> bodies.add(text(context.getMessage())))
            .processError(context -> errors.add(context.getException()))
            .buildProcessorClient();
        ServiceBusReceiverClient receiver = bench.receiver();
        take(processor, bodies, errors, numbers(10), () -> receiver.peekMessage(1) == null);
    }

    /** Runs a processor, which completes messages by itself, until it had the messages, and the queue is empty. */
    private static void take(ServiceBusProcessorClient processor, BlockingQueue<String> bodies,
        BlockingQueue<Throwable> errors, List<String> wanted, BooleanSupplier empty) throws InterruptedException {
        int count = wanted.size();
        List<String> got = new ArrayList<>();
        processor.start();
        try {
            while (got.size() < count) {
                String body = bodies.poll(Bench.PATIENCE.toSeconds(), TimeUnit.SECONDS);
                want(body != null, got.size() + " of " + count + " messages came; errors: " + errors);
                got.add(body);
            }
            // The processor completes a message after it was processed.
            long end = System.nanoTime() + Bench.PATIENCE.toNanos();
            while (!empty.getAsBoolean()) {
                want(System.nanoTime() < end, "messages are left; errors: " + errors);
            }
        } finally {
            processor.close();
        }
        want(errors.isEmpty(), "errors: " + errors);
        same(got.stream().sorted().collect(Collectors.toList()), wanted, "bodies");
    }

    private static void unknownQueue(Bench bench) {
        fails(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> bench.send(message("one")));
        failsFor(List.of("amqp:not-found"), () -> receiveAny(bench.receiver()));
    }

    private static void receiveAny(ServiceBusReceiverClient receiver) {
        receiver.receiveMessages(1, Duration.ofSeconds(10)).stream().count();
    }

    private static void unknownSubscription(Bench bench) {
        ServiceBusReceiverClient receiver = bench.subscription("missing");
        failsFor(List.of("amqp:not-found"), () -> receiveAny(receiver));
    }

    private static String state(ServiceBusReceiverClient receiver) {
        byte[] state = receiver.getSessionState();
        return state == null ? "" : new String(state);
    }

    private static void sessionState(Bench bench) {
        ServiceBusReceiverClient receiver = bench.session("a");
        same(state(receiver), "", "state of a new session");
        receiver.setSessionState("\0state".getBytes());
        same(state(receiver), "\0state", "state");
        receiver.close();
        ServiceBusReceiverClient next = bench.session("a");
        same(state(next), "\0state", "state of the next receiver");
        next.setSessionState(null);
        same(state(next), "", "state that was cleared");
    }

    private static void sessionNext(Bench bench) {
        bench.send(ofSession("a", "1"), ofSession("a", "2"), ofSession("a", "3"));
        ServiceBusReceiverClient receiver = bench.nextSession();
        same(receiver.getSessionId(), "a", "session id");
        List<ServiceBusReceivedMessage> messages = bench.receive(receiver, 3);
        same(texts(messages), List.of("1", "2", "3"), "bodies");
        same(messages.get(0).getSessionId(), "a", "session id of a message");
        bench.complete(receiver, messages);
        bench.receiveNothing(receiver);
    }

    private static void sessionNone(Bench bench) {
        // The gateway answers; a session without messages is none that is available.
        bench.session("a");
        ServiceBusSessionReceiverClient sessions = bench.closing(Bench
            .sessions(Bench.builder(Duration.ofSeconds(3))).queueName(bench.entity).buildClient());
        // The SDK's own time limit and the answer of the gateway come at the same time.
        try {
            failsFor(List.of("com.microsoft:timeout"), sessions::acceptNextSession);
        } catch (Bench.CheckFailure failure) {
            want(failure.getMessage().contains("TimeoutException") || failure.getMessage().contains("Timeout on"),
                failure.getMessage());
        }
    }

    private static void sessionTwo(Bench bench) {
        bench.send(ofSession("a", "a1"), ofSession("a", "a2"), ofSession("b", "b1"), ofSession("b", "b2"));
        List<ServiceBusReceiverClient> receivers = List.of(bench.nextSession(), bench.nextSession());
        same(receivers.stream().map(ServiceBusReceiverClient::getSessionId).collect(Collectors.toSet()),
            Set.of("a", "b"), "session ids");
        for (ServiceBusReceiverClient receiver : receivers) {
            List<ServiceBusReceivedMessage> messages = bench.receive(receiver, 2);
            same(texts(messages), List.of(receiver.getSessionId() + "1", receiver.getSessionId() + "2"), "bodies");
            bench.complete(receiver, messages);
        }
    }

    private static void sessionHeld(Bench bench) {
        bench.send(ofSession("a", "one"));
        ServiceBusReceiverClient receiver = bench.session("a");
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        failsFor(List.of("com.microsoft:session-cannot-be-locked"), () -> bench.session("a"));
        receiver.abandon(got);
        receiver.close();
        ServiceBusReceiverClient next = bench.session("a");
        next.complete(bench.receiveOne(next));
    }

    private static void sessionDefer(Bench bench) {
        bench.send(ofSession("a", "one"));
        ServiceBusReceiverClient receiver = bench.session("a");
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        receiver.defer(got);
        ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(got.getSequenceNumber());
        same(text(deferred), "one", "body");
        receiver.complete(deferred);
    }

    private static void sessionPeek(Bench bench) {
        bench.send(ofSession("a", "a1"), ofSession("b", "b1"));
        same(texts(bench.session("b").peekMessages(10)), List.of("b1"), "bodies");
    }

    private static void sessionRenewLock(Bench bench) {
        bench.send(ofSession("a", "one"));
        ServiceBusReceiverClient receiver = bench.session("a");
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        OffsetDateTime before = receiver.renewSessionLock();
        while (OffsetDateTime.now().isBefore(before)) {
            bench.receiveNothing(receiver);
            OffsetDateTime renewed = receiver.renewSessionLock();
            want(renewed.isAfter(before), "the renewed lock does not end later");
        }
        receiver.complete(got);
    }

    private static void sessionLockLost(Bench bench) {
        bench.send(ofSession("a", "one"));
        ServiceBusReceiverClient receiver = bench.session("a");
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        ServiceBusReceiverClient other = bench.nextSession();
        same(other.getSessionId(), "a", "session id");
        ServiceBusReceivedMessage again = bench.receiveOne(other);
        failsFor(List.of("com.microsoft:session-lock-lost"), () -> receiver.complete(got));
        failsFor(List.of("com.microsoft:session-lock-lost"), receiver::renewSessionLock);
        other.complete(again);
    }

    private static void sessionRequired(Bench bench) {
        ServiceBusReceiverClient receiver = bench.receiver();
        failsFor(List.of("amqp:not-allowed"), () -> receiveAny(receiver));
    }

    private static void sessionUnsupported(Bench bench) {
        failsFor(List.of("amqp:not-allowed"), () -> bench.session("a"));
    }

    private static void sessionMissing(Bench bench) {
        List<String> refused = List.of("amqp:not-allowed", "com.microsoft:argument-error");
        failsFor(refused, () -> bench.send(message("one")));
        ServiceBusMessage twice = ofSession("a", "one");
        twice.getRawAmqpMessage().getMessageAnnotations().put("x-opt-partition-key", "b");
        failsFor(refused, () -> bench.send(twice));
    }

    private static void sessionProcessor(Bench bench) throws InterruptedException {
        bench.send(ofSession("a", "a1"), ofSession("b", "b1"), ofSession("a", "a2"), ofSession("b", "b2"));
        BlockingQueue<String> bodies = new LinkedBlockingQueue<>();
        BlockingQueue<Throwable> errors = new LinkedBlockingQueue<>();
        ServiceBusProcessorClient processor = Bench.builder().sessionProcessor().queueName(bench.entity)
            .maxConcurrentSessions(2)
            .processMessage(context -> bodies.add(text(context.getMessage())))
            .processError(context -> errors.add(context.getException()))
            .buildProcessorClient();
        take(processor, bodies, errors, List.of("a1", "a2", "b1", "b2"), () -> true);
    }

    private static void topicAll(Bench bench) {
        bench.send(message("one"));
        for (String name : List.of("first", "second")) {
            ServiceBusReceiverClient receiver = bench.subscription(name);
            ServiceBusReceivedMessage got = bench.receiveOne(receiver);
            same(text(got), "one", "body");
            receiver.complete(got);
        }
    }

    private static void topicRules(Bench bench) {
        ServiceBusMessage red = message("red");
        red.getApplicationProperties().put("colour", "red");
        bench.send(red, message("blue").setSubject("blue"));
        Map<String, List<String>> wanted =
            Map.of("all", List.of("blue", "red"), "sql", List.of("red"), "correlation", List.of("blue"));
        wanted.forEach((name, bodies) -> {
            ServiceBusReceiverClient receiver = bench.subscription(name);
            List<ServiceBusReceivedMessage> messages = bench.receive(receiver, bodies.size());
            same(sorted(messages), bodies, "bodies of " + name);
            bench.complete(receiver, messages);
            bench.receiveNothing(receiver);
            Object mixed = messages.get(0).getApplicationProperties().get("mixed");
            want(!name.equals("sql") || "purple".equals(mixed), "the rule's action was not applied");
        });
    }

    private static void topicDeadLetter(Bench bench) {
        bench.send(message("one"));
        ServiceBusReceiverClient receiver = bench.subscription("all");
        receiver.deadLetter(bench.receiveOne(receiver), new DeadLetterOptions().setDeadLetterReason("a reason"));
        ServiceBusReceiverClient dead = bench.closing(
            bench.subscribing("all").subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
        ServiceBusReceivedMessage got = bench.receiveOne(dead);
        same(got.getDeadLetterReason(), "a reason", "reason");
        dead.complete(got);
    }

    private static void topicSession(Bench bench) {
        bench.send(ofSession("a", "one"));
        ServiceBusSessionReceiverClient sessions = bench.closing(
            Bench.sessions(Bench.builder()).topicName(bench.entity).subscriptionName("all").buildClient());
        ServiceBusReceiverClient receiver = bench.closing(sessions.acceptNextSession());
        same(receiver.getSessionId(), "a", "session id");
        receiver.complete(bench.receiveOne(receiver));
    }

    private static Map<String, RuleProperties> rules(ServiceBusRuleManagerClient manager) {
        Map<String, RuleProperties> rules = new TreeMap<>();
        manager.listRules().forEach(rule -> rules.put(rule.getName(), rule));
        return rules;
    }

    private static void ruleManager(Bench bench) {
        ServiceBusRuleManagerClient manager = bench.closing(Bench.builder().ruleManager().topicName(bench.entity)
            .subscriptionName("all").buildClient());
        same(rules(manager).keySet(), Set.of("$Default"), "rules");
        manager.createRule("sql", new CreateRuleOptions().setFilter(new SqlRuleFilter("colour = 'red'"))
            .setAction(new SqlRuleAction("SET mixed = 'purple'")));
        CorrelationRuleFilter blue = new CorrelationRuleFilter().setLabel("blue");
        blue.getProperties().put("size", 5);
        manager.createRule("correlation", new CreateRuleOptions(blue));
        fails(ServiceBusFailureReason.MESSAGING_ENTITY_ALREADY_EXISTS,
            () -> manager.createRule("sql", new CreateRuleOptions(new SqlRuleFilter("1 = 1"))));
        manager.deleteRule("$Default");
        fails(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> manager.deleteRule("$Default"));
        Map<String, RuleProperties> rules = rules(manager);
        same(rules.keySet(), Set.of("correlation", "sql"), "rules");
        same(((SqlRuleFilter) rules.get("sql").getFilter()).getSqlExpression(), "colour = 'red'", "filter of sql");
        same(((SqlRuleAction) rules.get("sql").getAction()).getSqlExpression(), "SET mixed = 'purple'",
            "action of sql");
        CorrelationRuleFilter correlation = (CorrelationRuleFilter) rules.get("correlation").getFilter();
        same(correlation.getLabel(), "blue", "label of correlation");
        same(correlation.getProperties().keySet(), Set.of("size"), "properties of correlation");
        same(correlation.getProperties().get("size").toString(), "5", "size of correlation");

        ServiceBusMessage red = message("red");
        red.getApplicationProperties().put("colour", "red");
        ServiceBusMessage small = message("blue").setSubject("blue");
        small.getApplicationProperties().put("size", 5);
        bench.send(red, small, message("green").setSubject("green"));
        ServiceBusReceiverClient receiver = bench.subscription("all");
        List<ServiceBusReceivedMessage> messages = bench.receive(receiver, 2);
        same(sorted(messages), List.of("blue", "red"), "bodies");
        bench.complete(receiver, messages);
        bench.receiveNothing(receiver);
    }

    private static void transactionCommit(Bench bench) {
        ServiceBusSenderClient sender = bench.sender();
        ServiceBusReceiverClient receiver = bench.receiver();
        ServiceBusTransactionContext transaction = sender.createTransaction();
        sender.sendMessage(keyed("1"), transaction);
        sender.sendMessages(List.of(keyed("2"), keyed("3")), transaction);
        bench.receiveNothing(receiver);
        sender.commitTransaction(transaction);
        List<ServiceBusReceivedMessage> messages = bench.receive(receiver, 3);
        same(sorted(messages), List.of("1", "2", "3"), "bodies");

        ServiceBusTransactionContext second = receiver.createTransaction();
        for (ServiceBusReceivedMessage message : messages) {
            receiver.complete(message, new CompleteOptions().setTransactionContext(second));
        }
        receiver.commitTransaction(second);
        bench.empty();
    }

    private static void transactionRollback(Bench bench) {
        ServiceBusSenderClient sender = bench.sender();
        ServiceBusReceiverClient receiver = bench.receiver();
        sender.sendMessage(keyed("kept"));
        ServiceBusTransactionContext transaction = sender.createTransaction();
        sender.sendMessage(keyed("not sent"), transaction);
        sender.rollbackTransaction(transaction);

        ServiceBusReceivedMessage message = bench.receiveOne(receiver);
        same(text(message), "kept", "body");
        ServiceBusTransactionContext second = receiver.createTransaction();
        receiver.complete(message, new CompleteOptions().setTransactionContext(second));
        receiver.rollbackTransaction(second);
        // The SDK holds it for settled; the message comes again when its lock has ended.
        ServiceBusReceivedMessage again = bench.receiveOne(receiver);
        same(text(again), "kept", "body after the lock");
        receiver.complete(again);
        bench.empty();
    }

    private static void transactionTwoEntities(Bench bench) {
        bench.send(keyed("one"));
        ServiceBusReceiverClient target = target(bench);
        forward(bench, true);
        ServiceBusReceivedMessage got = bench.receiveOne(target);
        same(text(got), "forwarded one", "body");
        target.complete(got);
        bench.empty();
    }

    private static void transactionTwoEntitiesRollback(Bench bench) {
        bench.send(keyed("one"));
        ServiceBusReceiverClient target = target(bench);
        forward(bench, false);
        bench.receiveNothing(target);
        ServiceBusReceiverClient receiver = bench.receiver();
        // It comes again when its lock has ended.
        ServiceBusReceivedMessage got = bench.receiveOne(receiver);
        same(text(got), "one", "body");
        receiver.complete(got);
    }

    private static ServiceBusReceiverClient target(Bench bench) {
        return bench.closing(Bench.builder().receiver().queueName(bench.entity + "-2").disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    /** Completes a message and sends another one with its key to another queue, in one transaction. */
    private static void forward(Bench bench, boolean commit) {
        ServiceBusClientBuilder builder = Bench.builder().enableCrossEntityTransactions();
        ServiceBusReceiverClient receiver = bench.closing(builder.receiver().queueName(bench.entity)
            .disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO).buildClient());
        ServiceBusReceivedMessage message = bench.receiveOne(receiver);
        ServiceBusSenderClient sender = bench.closing(builder.sender().queueName(bench.entity + "-2").buildClient());
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        sender.sendMessage(keyed("forwarded " + text(message)), transaction);
        receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
        if (commit) {
            receiver.commitTransaction(transaction);
        } else {
            receiver.rollbackTransaction(transaction);
        }
    }
}
