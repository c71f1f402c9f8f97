# One image, three programs: plimsoll (the manager), plimsoll-agent (copied into database pods), kubectl-plimsoll. Beside the agent of the
# image's own architecture lie those of the others (plimsoll-agent-arm64): the manager gives them to instances on nodes of these.
# `make image` replaces the build stage by a directory of local binaries, so it needs no base image.
FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26-bookworm AS build
ARG TARGETOS=linux TARGETARCH=amd64 VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api ./api
COPY bpf ./bpf
COPY cmd ./cmd
COPY controllers ./controllers
RUN export CGO_ENABLED=0 GOOS=$TARGETOS && \
    build() { go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=v$VERSION" -o "/$1" "$2"; } && \
    for arch in amd64 arm64; do export GOARCH=$arch; build plimsoll-agent-$arch ./cmd/plimsoll-agent || exit 1; done && \
    mv /plimsoll-agent-$TARGETARCH /plimsoll-agent && export GOARCH=$TARGETARCH && \
    build plimsoll ./cmd && build kubectl-plimsoll ./cmd/kubectl-plimsoll && \
    cp /etc/ssl/certs/ca-certificates.crt /

FROM scratch
ARG VERSION=dev
LABEL org.opencontainers.image.title="Plimsoll operator" \
      org.opencontainers.image.description="Runs replicated databases on Kubernetes" \
      org.opencontainers.image.source="https://github.com/plimsoll-dev/plimsoll-operator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="v${VERSION}"
COPY --from=build /ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /plimsoll /plimsoll-agent* /kubectl-plimsoll /
USER 65532:65532
ENTRYPOINT ["/plimsoll"]
