"""Other engines: programs of their own, each in an environment of its own."""

from typing import Final

from benchmarks.entrants.entrant import Entrant

__all__ = ["ENGINES"]

ENGINES: Final = (
    Entrant(
        name="DuckDB",
        about="window functions in DuckDB, two threads",
        script="duckdb_sessions.py",
        environment="tables",
    ),
    Entrant(
        name="Polars",
        about="lazy window expressions in Polars, two threads",
        script="polars_sessions.py",
        environment="tables",
    ),
    Entrant(
        name="Sail, aggregates",
        about="sessionkit on Sail, an engine without Java, aggregates instead of functions",
        script="sail_sessions.py",
        logic="aggregates",
        environment="sail",
    ),
    Entrant(
        name="Sail, functions",
        about="sessionkit on Sail, plain functions, a worker process for each core",
        script="sail_sessions.py",
        logic="functions",
        environment="sail",
    ),
    *(
        Entrant(
            name=f"Sail, functions, {workers} worker{'' if workers == 1 else 's'}",
            about=f"sessionkit on Sail, plain functions, {about}",
            script="sail_sessions.py",
            logic="functions",
            environment="sail",
            settings={"spark.sessionkit.workers": str(workers)},
        )
        for workers, about in {
            1: "one worker process",
            4: "four worker processes",
        }.items()
    ),
    Entrant(
        name="Flink SQL",
        about="the SESSION window of Flink SQL, parallelism 2, from CSV files",
        script="flink_sql.py",
        environment="flink",
        reads="csv",
    ),
    Entrant(
        name="Bytewax",
        about="the session windower of Bytewax, two workers",
        script="bytewax_sessions.py",
        environment="bytewax",
    ),
    Entrant(
        name="Pathway",
        about="the session window of Pathway, two threads, static input",
        script="pathway_sessions.py",
        environment="pathway",
    ),
)
