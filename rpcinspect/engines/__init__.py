"""Engines that read many captures as one table: Daft, Ray Data, Spark. Each module needs its engine only."""
