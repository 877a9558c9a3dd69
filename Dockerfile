# The codemod, the runtime and torch: docker build -t accel . && docker run --rm -v "$PWD":/work accel accel test --cpu
# The torch of the package index brings CUDA; for another build pass its requirement and its index:
#   docker build --build-arg TORCH=torch==2.13.0+cpu --build-arg INDEX=ADDRESS .
FROM python:3.11-slim
ARG TORCH=torch==2.13.0
ARG INDEX=
RUN pip install --no-cache-dir ${INDEX:+--extra-index-url "$INDEX"} "$TORCH"
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE /source/
COPY migrate /source/migrate
COPY runtime /source/runtime
RUN pip install --no-cache-dir --constraint /source/constraints.txt "/source[runtime]" && rm -r /source
WORKDIR /work
CMD ["accel-migrate", "--help"]
