# One image for every role: tailcast gateway | recorder | operator | demo | tools.
FROM node:26-slim AS build
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
RUN npm ci --no-audit --no-fund --ignore-scripts
COPY tsconfig.json tsconfig.build.json vite.config.ts ./
COPY src ./src
COPY scripts/shipped-packages.mjs ./scripts/shipped-packages.mjs
RUN npx tsc -p tsconfig.build.json && npx vite build --logLevel warn
# LICENSES.txt and sbom.cdx.json
RUN node scripts/shipped-packages.mjs dist

FROM node:26-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --no-audit --no-fund --ignore-scripts && npm cache clean --force
# Types and source maps of packages are half of their size, and nothing at run time reads them.
RUN find node_modules -type f \( -name '*.map' -o -name '*.d.ts' -o -name '*.d.mts' -o -name '*.d.cts' \) -delete

FROM node:26-slim
LABEL org.opencontainers.image.title="tailcast" \
      org.opencontainers.image.description="Kubernetes API-server proxy and session recorder for tailnets" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV NODE_ENV=production
WORKDIR /app
COPY package.json LICENSE ./
COPY scripts/tailcast.mjs ./scripts/tailcast.mjs
COPY --from=dependencies /app/node_modules ./node_modules
COPY --from=build /src/dist ./dist
# Nothing is written below /app. State goes to volumes: XDG_STATE_HOME for certificates, the store for recordings.
ENV XDG_STATE_HOME=/var/lib
RUN mkdir -p /var/lib/tailcast /data && chown -R 65532:65532 /var/lib/tailcast /data
USER 65532:65532
# Roles handle SIGTERM themselves: Node as process 1 needs no shell and no init around it.
ENTRYPOINT ["node", "/app/scripts/tailcast.mjs"]
CMD ["--help"]
# The roles that serve have a health listener on one of these ports; a container runs one role.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
  CMD ["node", "/app/dist/observe/health-probe.js", "http://127.0.0.1:9002/livez", "http://127.0.0.1:9003/livez", "http://127.0.0.1:9004/livez"]
