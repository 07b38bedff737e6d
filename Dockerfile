# One image for every role: tailcast gateway | recorder | operator | demo | tools.
# `npm run release` builds the image of a release without a container engine, with the same /app and fewer packages.
FROM node:26.10.0-slim@sha256:ec7758ee051e457b468b32bde57b0879010b325bb9862718e9615225ce4aaae1 AS build
# Commit that `tailcast --version` prints.
ARG COMMIT=""
WORKDIR /src
COPY package.json package-lock.json .npmrc LICENSE ./
RUN npm ci --no-audit --no-fund --ignore-scripts
COPY tsconfig.json tsconfig.build.json vite.config.ts ./
COPY src ./src
COPY demo ./demo
COPY scripts ./scripts
# Contains only the build, its production dependencies, LICENSES.txt and sbom.cdx.json.
RUN node scripts/release/stage.ts ../app --commit "$COMMIT"

FROM node:26.10.0-slim@sha256:ec7758ee051e457b468b32bde57b0879010b325bb9862718e9615225ce4aaae1
LABEL org.opencontainers.image.title="tailcast" \
      org.opencontainers.image.description="Kubernetes API-server proxy and session recorder for tailnets" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV NODE_ENV=production
WORKDIR /app
COPY --from=build /app /app
# Roles write no files below /app. Volumes contain the state: XDG_STATE_HOME for certificates, the store for recordings.
ENV XDG_STATE_HOME=/var/lib
RUN mkdir -p /var/lib/tailcast /data && chown -R 65532:65532 /var/lib/tailcast /data
USER 65532:65532
# Roles handle SIGTERM, so Node can be process 1 without a shell or an init process.
ENTRYPOINT ["node", "/app/scripts/tailcast.mjs"]
CMD ["--help"]
# Each server role has its health listener on one of these ports, and a container runs one role.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
  CMD ["node", "/app/dist/observe/health-probe.js", "http://127.0.0.1:9002/livez", "http://127.0.0.1:9003/livez", "http://127.0.0.1:9004/livez", "http://127.0.0.1:9005/livez"]
