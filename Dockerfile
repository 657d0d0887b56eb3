# syntax=docker/dockerfile:1
# hierbench in a container; CI does not build it.
#
#   docker build --tag hierbench .                                      # computes on the CPU
#   docker build --tag hierbench:cuda --build-arg TORCH_BACKEND=cu128 . # on an NVIDIA GPU, with docker run --gpus all
#   docker run --rm --volume "$PWD:/work" --user "$(id -u):$(id -g)" hierbench run --methods paper --dataset shapes
#
# TORCH_BACKEND is what uv pip install --torch-backend takes. VERSION is what hierbench --version then says; git is not in
# the image, so it is not found out.

ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
ARG TORCH_BACKEND=cpu
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_NO_CACHE=1 VIRTUAL_ENV=/opt/hierbench
RUN pip install --no-cache-dir "uv>=0.8,<1" && uv venv "$VIRTUAL_ENV"
WORKDIR /source
# The dependencies are a layer of their own, which changes with pyproject.toml alone.
COPY pyproject.toml ./
RUN uv pip install --torch-backend="$TORCH_BACKEND" -r pyproject.toml --extra train
COPY . .
ARG VERSION=
RUN SETUPTOOLS_SCM_PRETEND_VERSION_FOR_HIERBENCH="$VERSION" uv pip install --no-deps .

FROM python:${PYTHON}-slim
ARG TORCH_BACKEND=cpu
# On a GPU, Triton compiles with it.
RUN if [ "$TORCH_BACKEND" != cpu ]; then apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*; fi
COPY --from=build /opt/hierbench /opt/hierbench
# HOME, USER and the mode of /work serve any user id that docker run --user gives, also one without an account.
ENV PATH=/opt/hierbench/bin:$PATH HOME=/tmp USER=hierbench
RUN useradd --no-create-home --uid 1000 hierbench && mkdir --mode 1777 /work
USER 1000
WORKDIR /work
ENTRYPOINT ["hierbench"]
CMD ["--help"]
