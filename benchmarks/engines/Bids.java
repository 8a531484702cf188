import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.GroupState;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;

/**
 * Query 11 of NEXMark as an expert would write it with flatMapGroupsWithState, one group a bidder.
 *
 * It keeps one session a bidder, so it needs bids that are in order from batch to batch.
 */
public final class Bids {
  private Bids() {}

  /** What is stored: a session without its key, which Spark stores already; microseconds. */
  public static class Open implements java.io.Serializable {
    private long start;
    private long last;
    private long bids;

    public long getStart() { return start; }
    public void setStart(long value) { start = value; }
    public long getLast() { return last; }
    public void setLast(long value) { last = value; }
    public long getBids() { return bids; }
    public void setBids(long value) { bids = value; }
  }

  /** A row: the end is that of the last bid. */
  public static class Session extends Open {
    private long bidder;

    public long getBidder() { return bidder; }
    public void setBidder(long value) { bidder = value; }
  }

  private static Session closed(long bidder, Open open) {
    Session session = new Session();
    session.setBidder(bidder);
    session.setStart(open.start);
    session.setLast(open.last);
    session.setBids(open.bids);
    return session;
  }

  private static long micros(Timestamp time) {
    return Math.floorDiv(time.getTime(), 1000L) * 1_000_000L + time.getNanos() / 1000L;
  }

  private static long[] sorted(Iterator<Row> rows) {
    long[] times = new long[16];
    int count = 0;
    while (rows.hasNext()) {
      if (count == times.length) {
        times = Arrays.copyOf(times, 2 * count);
      }
      times[count++] = micros(rows.next().getTimestamp(1));
    }
    times = Arrays.copyOf(times, count);
    Arrays.sort(times);
    return times;
  }

  private static Iterator<Session> run(
      long bidder, Iterator<Row> rows, GroupState<Open> state, long gap) {
    List<Session> over = new ArrayList<>();
    if (state.hasTimedOut()) {
      over.add(closed(bidder, state.get()));
      state.remove();
      return over.iterator();
    }
    Open open = state.exists() ? state.get() : null;
    for (long time : sorted(rows)) {
      if (open != null && time - open.last > gap) {
        over.add(closed(bidder, open));
        open = null;
      }
      if (open == null) {
        open = new Open();
        open.start = time;
      }
      open.last = time;
      open.bids++;
    }
    state.update(open);
    long due = Math.floorDiv(open.last + gap, 1000L);
    state.setTimeoutTimestamp(Math.max(due, state.getCurrentWatermarkMs() + 1));
    return over.iterator();
  }

  /** Finds the sessions of bids that have a watermark: columns bidder and dateTime. */
  public static Dataset<Row> find(Dataset<Row> bids, long gap) {
    return bids
        .groupByKey((MapFunction<Row, Long>) row -> row.getLong(0), Encoders.LONG())
        .flatMapGroupsWithState(
            (FlatMapGroupsWithStateFunction<Long, Row, Open, Session>)
                (bidder, rows, state) -> run(bidder, rows, state, gap),
            OutputMode.Append(),
            Encoders.bean(Open.class),
            Encoders.bean(Session.class),
            GroupStateTimeout.EventTimeTimeout())
        .toDF();
  }
}
