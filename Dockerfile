# An image for each program, with nothing else: no shell, no user but a nameless one. Without a
# target it is the worker's.
#
# The compiler runs on the machine that builds, whatever it builds for:
#
#   docker buildx build --platform linux/amd64,linux/arm64 --target enqueue -t headgate-enqueue .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
# --build-arg VERSION=v1.2.3 is what --version, the API and metrics say: the history of the
# sources is not copied.
ARG VERSION=""
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w -X github.com/headgate/headgate/internal/version.stamped=$VERSION" -o /out/ ./cmd/worker ./cmd/enqueue

# The images have the certificates of authorities, the time zones that limits may name, and /tmp.
FROM gcr.io/distroless/static-debian12:nonroot AS enqueue
COPY --from=build /out/enqueue /
USER 65532:65532
ENTRYPOINT ["/enqueue"]
CMD ["serve"]

FROM gcr.io/distroless/static-debian12:nonroot AS worker
COPY --from=build /out/worker /
USER 65532:65532
ENTRYPOINT ["/worker"]
CMD ["run"]
