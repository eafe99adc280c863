package kafkabus.clients;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Checks a gateway with the Java SDK, or sends and receives messages of every type.
 *
 * <p>CONNECTION_STRING=… PREFIX=java- java … kafkabus.clients.Program [CHECK ...], or send-types QUEUE, or receive-types QUEUE
 * COUNT.
 */
public final class Program {
    private static final long TIME_LIMIT_S = 60;
    private static final int AT_ONCE = 4;

    private Program() {
    }

    public static void main(String[] arguments) throws Exception {
        List<String> names = List.of(arguments);
        boolean passed = true;
        if (names.size() == 2 && names.get(0).equals("send-types")) {
            MessageTypes.send(names.get(1));
        } else if (names.size() == 3 && names.get(0).equals("receive-types")) {
            MessageTypes.receive(names.get(1), Integer.parseInt(names.get(2)));
        } else {
            passed = run(names);
        }
        // Threads of checks that hang must not keep the process.
        Runtime.getRuntime().halt(passed ? 0 : 1);
    }

    private static boolean run(List<String> names) throws Exception {
        ExecutorService watches = Executors.newFixedThreadPool(AT_ONCE);
        List<Future<Boolean>> outcomes = new ArrayList<>();
        for (Map.Entry<String, Checks.Check> check : Checks.all().entrySet()) {
            if (names.isEmpty() || names.contains(check.getKey())) {
                outcomes.add(watches.submit(() -> watch(check.getKey(), check.getValue())));
            }
        }
        boolean passed = true;
        for (Future<Boolean> outcome : outcomes) {
            passed &= outcome.get();
        }
        return passed;
    }

    private static boolean watch(String name, Checks.Check check) {
        ExecutorService own = Executors.newSingleThreadExecutor();
        long began = System.nanoTime();
        Future<String> outcome = own.submit(() -> errorOf(name, check));
        String error;
        try {
            error = outcome.get(TIME_LIMIT_S, TimeUnit.SECONDS);
        } catch (TimeoutException late) {
            error = "took longer than " + TIME_LIMIT_S + " s";
        } catch (Exception unexpected) {
            error = Bench.describe(unexpected);
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("check", name);
        line.put("ok", error.isEmpty());
        line.put("error", error);
        line.put("seconds", Math.round((System.nanoTime() - began) / 1e7) / 100.0);
        Json.say(line);
        return error.isEmpty();
    }

    private static String errorOf(String name, Checks.Check check) {
        String prefix = System.getenv().getOrDefault("PREFIX", "java-");
        try (Bench bench = new Bench(prefix + name)) {
            check.run(bench);
            return "";
        } catch (Bench.CheckFailure failure) {
            return failure.getMessage();
        } catch (Throwable error) {
            return Bench.describe(error);
        }
    }
}
