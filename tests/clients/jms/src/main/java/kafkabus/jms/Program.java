package kafkabus.jms;

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
 * Checks a gateway with Qpid JMS and Spring JMS, or sends while the gateway is restarted.
 *
 * <p>CONNECTION_STRING=… PREFIX=jms- java … kafkabus.jms.Program [CHECK ...], or keep-sending QUEUE COUNT.
 */
public final class Program {
    private static final long TIME_LIMIT_S = 100;
    private static final int AT_ONCE = 6;

    private Program() {
    }

    /** A check. */
    interface Check {
        void run(Bench bench) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        List<String> names = List.of(arguments);
        boolean passed = true;
        if (names.size() == 3 && names.get(0).equals("keep-sending")) {
            KeepSending.run(names.get(1), Integer.parseInt(names.get(2)));
        } else {
            passed = run(names);
        }
        // Threads of checks that hang must not keep the process.
        Runtime.getRuntime().halt(passed ? 0 : 1);
    }

    private static Map<String, Check> checks() {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.putAll(Commits.all());
        checks.putAll(Refusals.all());
        checks.putAll(Links.all());
        return checks;
    }

    private static boolean run(List<String> names) throws Exception {
        ExecutorService watches = Executors.newFixedThreadPool(AT_ONCE);
        List<Future<Boolean>> outcomes = new ArrayList<>();
        for (Map.Entry<String, Check> check : checks().entrySet()) {
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

    private static boolean watch(String name, Check check) {
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
        double seconds = Math.round((System.nanoTime() - began) / 1e7) / 100.0;
        say("{\"check\": " + quoted(name) + ", \"ok\": " + error.isEmpty() + ", \"error\": " + quoted(error)
            + ", \"seconds\": " + seconds + "}");
        return error.isEmpty();
    }

    private static String errorOf(String name, Check check) {
        String prefix = System.getenv().getOrDefault("PREFIX", "jms-");
        try (Bench bench = new Bench(prefix + name)) {
            check.run(bench);
            return "";
        } catch (Bench.CheckFailure failure) {
            return failure.getMessage();
        } catch (Throwable error) {
            return Bench.describe(error);
        }
    }

    /** Prints a line. */
    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** Returns a text as JSON writes it. */
    static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            quoted.append(one == '"' || one == '\\' || one < ' ' ? String.format("\\u%04x", (int) one) : one);
        }
        return quoted.append('"').toString();
    }
}
