"""The labels of buckets against Spark's own hash."""

from collections import Counter

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionkit.spark._grouping import bucket_label


def test_spark_hashes_a_label_to_its_bucket(spark: SparkSession) -> None:
    """`hash(label)` of Spark is the number of the bucket."""
    buckets = [*range(1_024), 65_535]
    rows = [(bucket, bucket_label(bucket)) for bucket in buckets]
    frame = spark.createDataFrame(rows, "bucket int, label int")

    wrong = frame.where(F.hash("label") != F.col("bucket")).collect()

    assert [] == wrong


def test_every_partition_gets_its_share(spark: SparkSession) -> None:
    """Any number of partitions is dealt the buckets evenly, to within one."""
    labels = spark.createDataFrame([(bucket_label(bucket),) for bucket in range(64)], "label int")
    for partitions in (2, 7, 64, 200):
        dealt = labels.repartition(partitions, "label").select(F.spark_partition_id())

        shares = Counter(row[0] for row in dealt.collect())

        assert min(64, partitions) == len(shares)
        assert max(shares.values()) - min(shares.values()) <= 1
