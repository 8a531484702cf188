import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** The local file system, whose files have the permissions that the system gives them. */
public final class PlainLocalFileSystem extends LocalFileSystem {
  public PlainLocalFileSystem() {
    super(new Plain());
  }

  private static final class Plain extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) {}
  }
}
