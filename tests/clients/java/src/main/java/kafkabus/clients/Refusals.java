package kafkabus.clients;

import static kafkabus.clients.Bench.same;
import static kafkabus.clients.Bench.want;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.CompleteOptions;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** A transaction does all that it was asked for, or nothing: a refused operation fails it. */
final class Refusals {
    /** Longer than the locks of queues with short ones. */
    private static final Duration LOCKS_END = Duration.ofMillis(6_500);

    private Refusals() {
    }

    static Map<String, Checks.Check> all() {
        Map<String, Checks.Check> checks = new LinkedHashMap<>();
        checks.put("transacted-forwarding", Refusals::forwarding);
        checks.put("transacted-close", Refusals::close);
        checks.put("refused-key-missing", bench -> refused(bench, message("out")));
        checks.put("refused-keys-differ", bench -> refused(bench, of("one", message("out 1")), of("two", message("out 2"))));
        checks.put("refused-too-large",
            bench -> refusedAtOnceOrLater(bench, bench.entity + "-2", new ServiceBusMessage(new byte[1_100_000])));
        checks.put("refused-session-missing", bench -> refused(bench, message("out")));
        checks.put("refused-one-of-many",
            bench -> refused(bench, of("key", message("out 1")), message("out 2"), of("key", message("out 3"))));
        checks.put("refused-disabled", bench -> refusedAtOnceOrLater(bench, bench.entity + "-2", message("out")));
        checks.put("refused-unknown", bench -> refusedAtOnceOrLater(bench, bench.entity + "-none", message("out")));
        checks.put("refused-lock-lost", Refusals::lockLost);
        checks.put("refused-session-lock-lost", Refusals::sessionLockLost);
        return checks;
    }

    private static ServiceBusMessage message(String body) {
        return new ServiceBusMessage(body);
    }

    private static ServiceBusMessage of(String key, ServiceBusMessage message) {
        return message.setPartitionKey(key);
    }

    /** A receiver of the check's queue and a sender to another one, which share transactions. */
    private static final class Pair {
        final ServiceBusReceiverClient receiver;
        final ServiceBusSenderClient sender;

        Pair(Bench bench, String target) {
            ServiceBusClientBuilder builder = Bench.builder().enableCrossEntityTransactions();
            receiver = bench.closing(builder.receiver().queueName(bench.entity).disableAutoComplete()
                .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
            sender = bench.closing(builder.sender().queueName(target).buildClient());
        }

        void complete(ServiceBusReceivedMessage message, ServiceBusTransactionContext transaction) {
            receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
        }
    }

    /** Returns the error of work; null if there is none. */
    private static RuntimeException errorOf(Runnable work) {
        try {
            work.run();
            return null;
        } catch (RuntimeException error) {
            return error;
        }
    }

    /** Fails unless there is one message, and it comes again. */
    private static void comesAgain(Bench bench) {
        ServiceBusReceiverClient receiver = bench.receiver();
        ServiceBusReceivedMessage again = bench.receiveOne(receiver);
        same(again.getBody().toString(), "in", "the input");
        receiver.complete(again);
        bench.empty();
    }

    private static void notStored(Bench bench) {
        long count = bench.closing(Bench.builder().receiver().queueName(bench.entity + "-2").disableAutoComplete()
            .buildClient()).peekMessages(10).stream().count();
        same(count, 0L, "the number of messages that were stored");
    }

    /** Receives, sends what is refused, completes and commits: that fails, the input comes again, and there is no output. */
    private static void refused(Bench bench, ServiceBusMessage... outputs) {
        bench.send(of("key", message("in")));
        Pair pair = new Pair(bench, bench.entity + "-2");
        ServiceBusReceivedMessage message = bench.receiveOne(pair.receiver);
        ServiceBusTransactionContext transaction = pair.receiver.createTransaction();
        for (ServiceBusMessage output : outputs) {
            // Also a client that goes on after an error must not commit the rest.
            errorOf(() -> pair.sender.sendMessage(output, transaction));
        }
        errorOf(() -> pair.complete(message, transaction));
        want(errorOf(() -> pair.receiver.commitTransaction(transaction)) != null, "the commit succeeded");
        comesAgain(bench);
        notStored(bench);
    }

    /** As ``refused``; but the client may learn it before anything is part of the transaction, which it rolls back then. */
    private static void refusedAtOnceOrLater(Bench bench, String target, ServiceBusMessage output) {
        bench.send(of("key", message("in")));
        Pair pair = new Pair(bench, target);
        ServiceBusReceivedMessage message = bench.receiveOne(pair.receiver);
        ServiceBusTransactionContext transaction = pair.receiver.createTransaction();
        pair.complete(message, transaction);
        if (errorOf(() -> pair.sender.sendMessage(of("key", output), transaction)) != null) {
            errorOf(() -> pair.receiver.rollbackTransaction(transaction));
        } else {
            want(errorOf(() -> pair.receiver.commitTransaction(transaction)) != null, "the commit succeeded");
        }
        comesAgain(bench);
        if (!target.endsWith("-none")) {
            notStored(bench);
        }
    }

    private static void lockLost(Bench bench) throws InterruptedException {
        bench.send(of("key", message("in")));
        Pair pair = new Pair(bench, bench.entity + "-2");
        ServiceBusReceivedMessage message = bench.receiveOne(pair.receiver);
        Thread.sleep(LOCKS_END.toMillis());
        ServiceBusTransactionContext transaction = pair.receiver.createTransaction();
        pair.sender.sendMessage(of("key", message("out")), transaction);
        errorOf(() -> pair.complete(message, transaction));
        want(errorOf(() -> pair.receiver.commitTransaction(transaction)) != null, "the commit succeeded");
        comesAgain(bench);
        notStored(bench);
    }

    private static void sessionLockLost(Bench bench) throws InterruptedException {
        bench.send(message("in").setSessionId("one"));
        ServiceBusReceiverClient receiver = bench.session("one");
        ServiceBusReceivedMessage message = bench.receiveOne(receiver);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        Thread.sleep(LOCKS_END.toMillis());
        RuntimeException atOnce = errorOf(
            () -> receiver.complete(message, new CompleteOptions().setTransactionContext(transaction)));
        RuntimeException atTheEnd = errorOf(() -> receiver.commitTransaction(transaction));
        want(atOnce != null || atTheEnd != null, "the message was completed without the session's lock");
        ServiceBusReceiverClient next = bench.session("one");
        ServiceBusReceivedMessage again = bench.receiveOne(next);
        same(again.getBody().toString(), "in", "the input");
        next.complete(again);
    }

    private static void forwarding(Bench bench) {
        List<String> numbers =
            IntStream.range(100, 130).mapToObj(Integer::toString).collect(Collectors.toList());
        bench.send(numbers.stream().map(body -> of("key", message(body))).toArray(ServiceBusMessage[]::new));
        Pair pair = new Pair(bench, bench.entity + "-2");
        for (int index = 0; index < numbers.size(); index++) {
            ServiceBusReceivedMessage message = bench.receiveOne(pair.receiver);
            ServiceBusTransactionContext transaction = pair.receiver.createTransaction();
            pair.sender.sendMessage(of("key", message(message.getBody().toString())), transaction);
            pair.complete(message, transaction);
            pair.receiver.commitTransaction(transaction);
        }
        List<String> forwarded = new ArrayList<>();
        ServiceBusReceiverClient target = bench.closing(Bench.builder().receiver().queueName(bench.entity + "-2")
            .disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO).buildClient());
        for (ServiceBusReceivedMessage message : bench.receive(target, numbers.size())) {
            forwarded.add(message.getBody().toString());
            target.complete(message);
        }
        same(forwarded.stream().sorted().collect(Collectors.toList()), numbers, "what was forwarded");
        bench.receiveNothing(target);
        bench.empty();
    }

    /** A client that goes without a commit leaves nothing. */
    private static void close(Bench bench) {
        bench.send(of("key", message("in")));
        Pair pair = new Pair(bench, bench.entity + "-2");
        ServiceBusReceivedMessage message = bench.receiveOne(pair.receiver);
        ServiceBusTransactionContext transaction = pair.receiver.createTransaction();
        pair.sender.sendMessage(of("key", message("out")), transaction);
        pair.complete(message, transaction);
        pair.sender.close();
        pair.receiver.close();
        comesAgain(bench);
        notStored(bench);
    }
}
