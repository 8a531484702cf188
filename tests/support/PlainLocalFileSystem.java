import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local file system, whose files have the permissions that the system gives them.
 *
 * <p>After a number of changes, or from a change of a name on, it makes no more: its files are those
 * of a process killed then. It may also kill its process there.
 */
public final class PlainLocalFileSystem extends LocalFileSystem {
  private static final AtomicLong LEFT = new AtomicLong(Long.MAX_VALUE);
  private static final Pattern NEVER = Pattern.compile("(?!)");
  private static volatile Pattern end = NEVER;
  private static volatile boolean isKilled = false;

  public PlainLocalFileSystem() {
    super(new Plain());
  }

  public static void allow(long changes) {
    end = NEVER;
    LEFT.set(changes);
  }

  /** Returns how many more changes are allowed; fewer than none where some were refused. */
  public static long left() {
    return LEFT.get();
  }

  /** Makes no change from the first one on that is called so, such as `rename /a/offsets/0`. */
  public static void allowUntil(String change) {
    end = Pattern.compile(change);
  }

  /** Kills this process instead. */
  public static void killAt(String change) {
    isKilled = true;
    allowUntil(change);
  }

  private static void change(String kind, Path path) throws IOException {
    String name = kind + " " + path.toUri().getPath();
    if (System.getenv("TRACE_CHANGES") != null) {
      System.err.println("CHANGE " + name);
    }
    if (end.matcher(name).find()) {
      if (isKilled) {
        new ProcessBuilder("kill", "-9", "" + ProcessHandle.current().pid()).start();
      }
      LEFT.set(0);
      end = NEVER;
    }
    if (LEFT.decrementAndGet() < 0) {
      throw new IOException("no more changes are allowed");
    }
  }

  private static final class Plain extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) {}

    @Override
    public boolean rename(Path from, Path to) throws IOException {
      change("rename", to);
      return super.rename(from, to);
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
      if (pathToFile(path).exists()) {
        change("delete", path);
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
        change("mkdir", path);
      }
    }

    @Override
    protected OutputStream createOutputStream(Path path, boolean append) throws IOException {
      change("create", path);
      return new Counted(super.createOutputStream(path, append), path);
    }

    @Override
    protected OutputStream createOutputStreamWithMode(
        Path path, boolean append, FsPermission permission) throws IOException {
      change("create", path);
      return new Counted(super.createOutputStreamWithMode(path, append, permission), path);
    }
  }

  private static final class Counted extends FilterOutputStream {
    private final Path path;

    Counted(OutputStream to, Path path) {
      super(to);
      this.path = path;
    }

    @Override
    public void write(byte[] bytes, int from, int length) throws IOException {
      change("write", path);
      out.write(bytes, from, length);
    }
  }
}
