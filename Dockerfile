# The same image as that of `make image`, built with a container runtime:
#
#   docker build --tag localhost/capi-ipam:dev --build-arg VERSION=dev --build-arg REVISION="$(git rev-parse HEAD)" .
#
# Add --platform=linux/amd64,linux/arm64 for both architectures. The compiler runs on the architecture of the builder.
FROM --platform=$BUILDPLATFORM rust:1.95.0-slim-bookworm AS build
ARG TARGETARCH
# The toolchain of the base image, without the development components in rust-toolchain.toml.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN if [ "$(dpkg --print-architecture)" != "$TARGETARCH" ]; then \
      apt-get update && apt-get install --yes --no-install-recommends clang && rm -rf /var/lib/apt/lists/*; \
    fi
WORKDIR /src
COPY . .
ARG REVISION=unknown
ENV CAPI_IPAM_REVISION=$REVISION
RUN cp "$(hack/image/build-binary.sh "$TARGETARCH")" /manager

# Only the program: it is static, the kubelet mounts the files that it reads (the service account token and the CA of
# the API server, certificates of webhooks, resolv.conf), and it writes no files. The base image of a distribution would
# only add files that have to be updated.
FROM scratch
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="capi-ipam" \
      org.opencontainers.image.description="IP address management for Kubernetes Cluster API: the in-cluster provider" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /manager /manager
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/manager"]
