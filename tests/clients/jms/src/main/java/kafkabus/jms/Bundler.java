package kafkabus.jms;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;

/** A network between a client and the gateway that brings together what the client wrote within a time. */
final class Bundler implements AutoCloseable {
    private static final long WITHIN_MS = 20;
    private static final int MOST = 1 << 16;

    private final ServerSocket server;
    private final URI gateway;

    Bundler(String gateway) throws IOException {
        this.gateway = URI.create(gateway);
        server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        start(this::accept);
    }

    /** Returns the address to which clients connect. */
    String address() {
        return "amqp://127.0.0.1:" + server.getLocalPort();
    }

    /** Work with sockets, which ends when they are closed. */
    private interface Work {
        void run() throws IOException, InterruptedException;
    }

    private static void start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException closed) {
                // The check is over.
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() throws IOException {
        while (true) {
            Socket client = server.accept();
            Socket inner = new Socket(gateway.getHost(), gateway.getPort());
            start(() -> bundle(client, inner));
            start(() -> {
                try (client; inner) {
                    inner.getInputStream().transferTo(client.getOutputStream());
                }
            });
        }
    }

    private static void bundle(Socket client, Socket inner) throws IOException, InterruptedException {
        byte[] buffer = new byte[MOST];
        try (client; inner) {
            InputStream from = client.getInputStream();
            OutputStream to = inner.getOutputStream();
            for (int count = from.read(buffer); count >= 0; count = from.read(buffer)) {
                ByteArrayOutputStream together = new ByteArrayOutputStream();
                together.write(buffer, 0, count);
                Thread.sleep(WITHIN_MS);
                while (from.available() > 0) {
                    together.write(buffer, 0, from.read(buffer));
                }
                to.write(together.toByteArray());
            }
        }
    }

    @Override
    public void close() {
        try {
            server.close();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
