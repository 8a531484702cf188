import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local file system, whose files have the permissions that the system gives them.
 *
 * <p>After a number of changes it makes no more: its files are those of a process killed then.
 */
public final class PlainLocalFileSystem extends LocalFileSystem {
  private static final AtomicLong LEFT = new AtomicLong(Long.MAX_VALUE);

  public PlainLocalFileSystem() {
    super(new Plain());
  }

  public static void allow(long changes) {
    LEFT.set(changes);
  }

  /** Returns how many more changes are allowed; fewer than none where some were refused. */
  public static long left() {
    return LEFT.get();
  }

  private static void change() throws IOException {
    if (LEFT.decrementAndGet() < 0) {
      throw new IOException("no more changes are allowed");
    }
  }

  private static final class Plain extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) {}

    @Override
    public boolean rename(Path from, Path to) throws IOException {
      change();
      return super.rename(from, to);
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
      if (pathToFile(path).exists()) {
        change();
      }
      return super.delete(path, recursive);
    }

    @Override
    public boolean mkdirs(Path path) throws IOException {
      makes(path);
      return super.mkdirs(path);
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
      makes(path);
      return super.mkdirs(path, permission);
    }

    private void makes(Path path) throws IOException {
      if (!pathToFile(path).isDirectory()) {
        change();
      }
    }

    @Override
    protected OutputStream createOutputStream(Path path, boolean append) throws IOException {
      change();
      return new Counted(super.createOutputStream(path, append));
    }

    @Override
    protected OutputStream createOutputStreamWithMode(
        Path path, boolean append, FsPermission permission) throws IOException {
      change();
      return new Counted(super.createOutputStreamWithMode(path, append, permission));
    }
  }

  private static final class Counted extends FilterOutputStream {
    Counted(OutputStream to) {
      super(to);
    }

    @Override
    public void write(byte[] bytes, int from, int length) throws IOException {
      change();
      out.write(bytes, from, length);
    }
  }
}
