import java.sql.Timestamp;
import java.util.ArrayList;
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
 * The job that an expert would write in Java with flatMapGroupsWithState, one group a user.
 *
 * It keeps one session a user, so it needs events that are in order from batch to batch.
 */
public final class Sessions {
  private Sessions() {}

  /** An open session, and a row: times are microseconds, the end is that of the last event. */
  public static class Session implements java.io.Serializable {
    private String user;
    private long start;
    private long last;
    private long events;
    private double seconds;

    public String getUser() { return user; }
    public void setUser(String value) { user = value; }
    public long getStart() { return start; }
    public void setStart(long value) { start = value; }
    public long getLast() { return last; }
    public void setLast(long value) { last = value; }
    public long getEvents() { return events; }
    public void setEvents(long value) { events = value; }
    public double getSeconds() { return seconds; }
    public void setSeconds(double value) { seconds = value; }
  }

  /** What is stored: a session without its key, which Spark stores already. */
  public static class Open implements java.io.Serializable {
    private long start;
    private long last;
    private long events;
    private double seconds;

    public long getStart() { return start; }
    public void setStart(long value) { start = value; }
    public long getLast() { return last; }
    public void setLast(long value) { last = value; }
    public long getEvents() { return events; }
    public void setEvents(long value) { events = value; }
    public double getSeconds() { return seconds; }
    public void setSeconds(double value) { seconds = value; }
  }

  private record Event(long time, double seconds) {}

  private static Session closed(String user, Open open) {
    Session session = new Session();
    session.user = user;
    session.start = open.start;
    session.last = open.last;
    session.events = open.events;
    session.seconds = open.seconds;
    return session;
  }

  private static long micros(Timestamp time) {
    return Math.floorDiv(time.getTime(), 1000L) * 1_000_000L + time.getNanos() / 1000L;
  }

  private static Iterator<Session> run(
      String user, Iterator<Row> rows, GroupState<Open> state, long gap) {
    List<Session> over = new ArrayList<>();
    if (state.hasTimedOut()) {
      over.add(closed(user, state.get()));
      state.remove();
      return over.iterator();
    }
    List<Event> events = new ArrayList<>();
    rows.forEachRemaining(row -> events.add(new Event(micros(row.getTimestamp(1)), row.getDouble(2))));
    events.sort((one, other) -> Long.compare(one.time, other.time));
    Open open = state.exists() ? state.get() : null;
    for (Event event : events) {
      if (open != null && event.time - open.last > gap) {
        over.add(closed(user, open));
        open = null;
      }
      if (open == null) {
        open = new Open();
        open.start = event.time;
      }
      open.last = event.time;
      open.events++;
      open.seconds += event.seconds;
    }
    state.update(open);
    long due = Math.floorDiv(open.last + gap, 1000L);
    state.setTimeoutTimestamp(Math.max(due, state.getCurrentWatermarkMs() + 1));
    return over.iterator();
  }

  /** Finds the sessions of events that have a watermark: columns user, ts and seconds. */
  public static Dataset<Row> find(Dataset<Row> events, long gap) {
    return events
        .groupByKey((MapFunction<Row, String>) row -> row.getString(0), Encoders.STRING())
        .flatMapGroupsWithState(
            (FlatMapGroupsWithStateFunction<String, Row, Open, Session>)
                (user, rows, state) -> run(user, rows, state, gap),
            OutputMode.Append(),
            Encoders.bean(Open.class),
            Encoders.bean(Session.class),
            GroupStateTimeout.EventTimeTimeout())
        .toDF();
  }
}
