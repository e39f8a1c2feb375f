import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;

/**
 * An echo server on a selector, and its client. A message is its length and so many bytes; the server answers when it has all of it,
 * from a buffer to which it was copied.
 */
final class Channels {
    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[1]);
        if (args[0].equals("serve")) serve(port);
        else ask(port, Files.readAllBytes(Path.of(args[2])));
    }

    private static final class Connection {
        final ByteBuffer input = ByteBuffer.allocateDirect(512 << 10);
        final ByteBuffer header = ByteBuffer.allocate(4);
        ByteBuffer message;
        final ArrayDeque<ByteBuffer> output = new ArrayDeque<>();
        int messages;
    }

    private static void serve(int port) throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", port));
        listener.configureBlocking(false).register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel accepted = listener.accept();
                    accepted.configureBlocking(false).register(selector, SelectionKey.OP_READ, new Connection());
                } else if (!turn((SocketChannel) key.channel(), (Connection) key.attachment(), key)) {
                    key.channel().close();
                }
            }
            selector.selectedKeys().clear();
        }
    }

    private static boolean turn(SocketChannel channel, Connection c, SelectionKey key) throws IOException {
        if (key.isReadable()) {
            if (channel.read(c.input) == -1) return false;
            c.input.flip();
            while (c.input.hasRemaining()) {
                if (c.message == null) {
                    while (c.header.hasRemaining() && c.input.hasRemaining()) c.header.put(c.input.get());
                    if (c.header.hasRemaining()) break;
                    int size = c.header.flip().getInt();
                    // heap and direct buffers in turns
                    c.message = c.messages++ % 2 == 0 ? ByteBuffer.allocateDirect(size + 4) : ByteBuffer.allocate(size + 4);
                    c.message.putInt(size);
                    c.header.clear();
                }
                int n = Math.min(c.input.remaining(), c.message.remaining());
                c.message.put(c.input.slice(c.input.position(), n));
                c.input.position(c.input.position() + n);
                if (!c.message.hasRemaining()) {
                    c.output.add(c.message.flip());
                    c.message = null;
                }
            }
            c.input.clear();
        }
        while (!c.output.isEmpty()) {
            channel.write(c.output.toArray(new ByteBuffer[0]));
            if (c.output.peek().hasRemaining()) break;
            while (!c.output.isEmpty() && !c.output.peek().hasRemaining()) c.output.remove();
        }
        key.interestOps(SelectionKey.OP_READ | (c.output.isEmpty() ? 0 : SelectionKey.OP_WRITE));
        return true;
    }

    private static void ask(int port, byte[] data) throws Exception {
        int[] sizes = {0, 1, 4095, 65536, 100_001, 524_288, 1_000_003, 5_000_000, data.length};
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        try (SocketChannel channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port))) {
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            for (int round = 0; round < 4; round++) {
                for (int size : sizes) {
                    ByteBuffer message = round % 2 == 0 ? ByteBuffer.allocateDirect(size + 4) : ByteBuffer.allocate(size + 4);
                    int from = (data.length - size) / (round + 1);
                    message.putInt(size).put(data, from, size).flip();
                    Thread sender = new Thread(() -> {
                        try {
                            while (message.hasRemaining()) channel.write(message);
                        } catch (IOException e) {
                            throw new RuntimeException(e);
                        }
                    });
                    sender.start();
                    ByteBuffer back = ByteBuffer.allocateDirect(size + 4);
                    while (back.hasRemaining()) if (channel.read(back) == -1) throw new IOException("closed early");
                    sender.join();
                    byte[] got = new byte[size];
                    back.position(4).get(got);
                    if (back.getInt(0) != size || !Arrays.equals(got, Arrays.copyOfRange(data, from, from + size)))
                        throw new IOException("a message of " + size + " bytes came back with other bytes");
                    digest.update(got);
                }
            }
        }
        System.out.println("echoed " + HexFormat.of().formatHex(digest.digest(), 0, 8));
    }
}
