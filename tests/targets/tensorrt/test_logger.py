"""What TensorRT says goes to Python's logging; its errors to those who collect them."""

from __future__ import annotations

import logging

import tensorrt_rtx as trt
from isomorph.targets.tensorrt.logger import collected_errors, logger_of


def test_there_is_one_logger_for_the_process():
    assert logger_of(trt) is logger_of(trt)


def test_messages_reach_logging_and_errors_their_collectors(caplog):
    caplog.set_level(logging.DEBUG, "isomorph.tensorrt_rtx")
    logger, severity = logger_of(trt), trt.ILogger.Severity
    with collected_errors() as outer:
        logger.log(severity.ERROR, "first")
        with collected_errors() as inner:
            logger.log(severity.INTERNAL_ERROR, "second")
            logger.log(severity.WARNING, "a warning")
        logger.log(severity.VERBOSE, "a word")
    logger.log(severity.ERROR, "nobody collects")
    assert (outer, inner) == (["first", "second"], ["second"])
    levels = {record.message: record.levelname for record in caplog.records}
    assert levels["a warning"] == "WARNING"
    assert levels["a word"] == "DEBUG"
    assert levels["second"] == "ERROR"
