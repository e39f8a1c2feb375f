import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;

/** Copies a file in the three ways that "Zero-copy: Principle and Implementation" compares; prints the nanoseconds. */
final class ArticleCopy {
    public static void main(String[] arguments) throws IOException {
        String from = arguments[1];
        String to = arguments[2];
        long begin = System.nanoTime();
        switch (arguments[0]) {
            case "buffered" -> buffered(from, to);
            case "mmap" -> mapped(from, to);
            case "sendfile" -> transferred(from, to);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.println(System.nanoTime() - begin);
    }

    /** A byte at a time through buffered streams. */
    private static void buffered(String from, String to) throws IOException {
        try (var source = new BufferedInputStream(new FileInputStream(from));
                var target = new BufferedOutputStream(new FileOutputStream(to))) {
            byte[] single = new byte[1];
            while (source.read(single) > 0) {
                target.write(single);
            }
        }
    }

    /** A byte at a time from mapping to mapping. */
    private static void mapped(String from, String to) throws IOException {
        try (FileChannel source = new FileInputStream(from).getChannel();
                FileChannel target = new RandomAccessFile(to, "rw").getChannel()) {
            long length = source.size();
            MappedByteBuffer read = source.map(FileChannel.MapMode.READ_ONLY, 0, length);
            MappedByteBuffer written = target.map(FileChannel.MapMode.READ_WRITE, 0, length);
            for (int at = 0; at < length; at++) {
                written.put(at, read.get(at));
            }
        }
    }

    /** By the kernel. */
    private static void transferred(String from, String to) throws IOException {
        try (FileChannel source = new FileInputStream(from).getChannel();
                FileChannel target = new FileOutputStream(to).getChannel()) {
            source.transferTo(0, source.size(), target);
        }
    }
}
