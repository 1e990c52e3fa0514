# The same image as that of `make image`, for those who build with a container runtime:
#
#   docker build --tag localhost/capi-ipam:dev --build-arg VERSION=dev --build-arg REVISION="$(git rev-parse HEAD)" .
#
# and with --platform=linux/amd64,linux/arm64 for both. The compiler runs on the builder's own architecture.
FROM --platform=$BUILDPLATFORM rust:1.95.0-slim-bookworm AS build
ARG TARGETARCH
# This very toolchain, without the parts for development that rust-toolchain.toml asks for.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN if [ "$(dpkg --print-architecture)" != "$TARGETARCH" ]; then \
      apt-get update && apt-get install --yes --no-install-recommends clang && rm -rf /var/lib/apt/lists/*; \
    fi
WORKDIR /src
COPY . .
RUN cp "$(hack/image/build-binary.sh "$TARGETARCH")" /manager

# Nothing but the program: it is static, the kubelet mounts what it reads (the service account with the authority of the
# API server, certificates of webhooks, resolv.conf), and it writes no files. A distribution's base image would add files
# to look after, and nothing that is used.
FROM scratch
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="capi-ipam" \
      org.opencontainers.image.description="IP address management for Kubernetes Cluster API: the in-cluster provider, and a framework for writing others" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /manager /manager
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/manager"]
