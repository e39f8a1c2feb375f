import java.io.*;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayDeque;

/** Copies a file in one of the ways that a Java program has. */
final class Copies {
    public static void main(String[] args) throws IOException {
        switch (args[0]) {
            case "stream" -> stream(args[1], args[2]);
            case "buffered" -> buffered(args[1], args[2]);
            case "mapped" -> mapped(args[1], args[2]);
            case "transfer" -> transfer(args[1], args[2]);
            case "channel" -> channel(args[1], args[2]);
            case "gather" -> gather(args[1], args[2]);
            case "garbage" -> garbage(args[1], args[2]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static void stream(String from, String to) throws IOException {
        try (var in = new FileInputStream(from); var out = new FileOutputStream(to)) {
            byte[] buffer = new byte[1 << 20];
            for (int n; (n = in.read(buffer)) != -1; ) out.write(buffer, 0, n);
        }
    }

    private static void buffered(String from, String to) throws IOException {
        try (var in = new BufferedInputStream(new FileInputStream(from), 256 << 10);
                var out = new BufferedOutputStream(new FileOutputStream(to), 256 << 10)) {
            byte[] one = new byte[1];
            while (in.read(one) != -1) out.write(one);
        }
    }

    private static void mapped(String from, String to) throws IOException {
        try (FileChannel in = new FileInputStream(from).getChannel(); FileChannel out = new RandomAccessFile(to, "rw").getChannel()) {
            long size = in.size();
            MappedByteBuffer source = in.map(FileChannel.MapMode.READ_ONLY, 0, size);
            MappedByteBuffer target = out.map(FileChannel.MapMode.READ_WRITE, 0, size);
            int half = (int) size / 2;
            for (int i = 0; i < half; i++) target.put(i, source.get(i));
            target.position(half);
            target.put(source.position(half));
            target.force();
        }
    }

    private static void transfer(String from, String to) throws IOException {
        try (FileChannel in = new FileInputStream(from).getChannel(); FileChannel out = new FileOutputStream(to).getChannel()) {
            long size = in.size();
            for (long at = 0; at < size; ) at += in.transferTo(at, size - at, out);
        }
    }

    private static void channel(String from, String to) throws IOException {
        try (FileChannel in = new FileInputStream(from).getChannel(); FileChannel out = new FileOutputStream(to).getChannel()) {
            ByteBuffer direct = ByteBuffer.allocateDirect(1 << 20);
            ByteBuffer second = ByteBuffer.allocateDirect(1 << 20);
            while (in.read(direct.clear()) != -1) {
                second.clear().put(direct.flip()).flip();
                while (second.hasRemaining()) out.write(second);
            }
        }
    }

    private static void gather(String from, String to) throws IOException {
        try (FileChannel in = new FileInputStream(from).getChannel(); FileChannel out = new FileOutputStream(to).getChannel()) {
            ByteBuffer[] buffers = {ByteBuffer.allocateDirect(70_001), ByteBuffer.allocate(300_000), ByteBuffer.allocateDirect(1 << 20)};
            while (true) {
                for (ByteBuffer buffer : buffers) buffer.clear();
                if (in.read(buffers) == -1) break;
                for (ByteBuffer buffer : buffers) buffer.flip();
                while (buffers[0].hasRemaining() || buffers[1].hasRemaining() || buffers[2].hasRemaining()) out.write(buffers);
            }
        }
    }

    /** Pieces read into new arrays, copied several times, some kept for a while: what a collector moves about. */
    private static void garbage(String from, String to) throws IOException {
        try (var in = new FileInputStream(from); var out = new FileOutputStream(to)) {
            var kept = new ArrayDeque<byte[]>();
            for (byte[] piece; (piece = in.readNBytes(500_000)).length > 0; ) {
                for (int i = 0; i < 10; i++) piece = piece.clone();
                kept.add(piece);
                if (kept.size() > 40) out.write(kept.remove());
            }
            for (byte[] piece : kept) out.write(piece);
        }
    }
}
