"""Visits of the views in a CSV file, on Sail: `python csv_to_csv.py views.csv visits.csv`."""

import sys

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

from sessionkit import aggregates as agg
from sessionkit.spark import sessions

server = SparkConnectServer()
server.start()
spark = SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").getOrCreate()
views = spark.read.csv(sys.argv[1], schema="user string, ts timestamp, page string", header=True)
found = sessions(views, keys="user", event_time="ts", gap="30 minutes")
visits = found.agg(pages=agg.count(), landing=agg.first("page"), exit=agg.last("page"))
visits.toPandas().to_csv(sys.argv[2], index=False)
