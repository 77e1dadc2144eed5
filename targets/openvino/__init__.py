"""OpenVINO: an IR of two files, run on OpenVINO's plug-ins."""
