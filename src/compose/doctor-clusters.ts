/** The checks of `tailcast doctor gateway` for several clusters: their sources, and the API server of each cluster. */
import type { GatewayConfig } from '../config/gateway.ts';
import { apiServerChecks } from '../doctor/api-server-checks.ts';
import { failed, ok, type Check, type CheckVerdict } from '../doctor/checks.ts';
import { grantsCheck, type CallerGrant, type GrantScope } from '../doctor/grants-check.ts';
import { permissionChecks } from '../doctor/permission-checks.ts';
import { errorText, TailcastError } from '../errors.ts';
import { createSilentLogger } from '../observe/logger.ts';
import { openSources, ownPrefix, type ClusterSpec } from './cluster-sources.ts';
import { createClusterServer, readClusterFile } from './clusters.ts';
import type { DoctorOptions } from './doctor.ts';
import { openApiServer } from './gateway-upstream.ts';

export interface ClusterDoctorParts extends DoctorOptions {
  readonly config: GatewayConfig;
  readonly path: string;
  /** Returns a function that reads the grants of all callers for one cluster. */
  readonly grantsOf: (scope: GrantScope) => (signal: AbortSignal) => Promise<readonly CallerGrant[]>;
  /** Returns the host names of the gateway, in lower case. */
  readonly ownHosts: (signal: AbortSignal) => Promise<ReadonlySet<string>>;
  /** Throws if tailscaled cannot return grants for Tailscale Services. */
  readonly assertServices: (signal: AbortSignal) => Promise<void>;
  /** Ids of checks that must pass before grants are read. */
  readonly grantNeeds: readonly string[];
}

interface FoundSpecs {
  readonly specs: ReadonlyMap<string, ClusterSpec>;
  readonly problems: readonly string[];
}

const MAX_SHOWN = 5;

/** @throws TailcastError `CONFIG_INVALID` if the file is invalid */
export async function clusterChecks(parts: ClusterDoctorParts): Promise<{
  readonly checks: readonly Check[];
  /** Grants of all clusters. */
  readonly grants: (signal: AbortSignal) => Promise<readonly CallerGrant[]>;
}> {
  const file = await readClusterFile(parts.path);
  const { specs, problems } = await readSpecs(file, parts);
  const scopes = [...specs.values()].map(({ name, service }) =>
    parts.grantsOf({ name, service, isDefault: file.unscopedRules === 'all' }),
  );
  const hasServices = [...file.clusters, ...file.discover].some(({ service }) => service !== undefined);
  return {
    checks: [
      {
        id: 'clusters',
        title: 'clusters',
        remedy: 'upgrade tailscaled, or remove `service` from the clusters',
        async run(signal) {
          if (hasServices) await parts.assertServices(signal);
          return sourcesVerdict({ specs, problems });
        },
      },
      ...[...specs.values()].flatMap((spec, index) => checksOf(spec, parts, scopes[index])),
    ],
    grants: async (signal) => (await Promise.all(scopes.map((read) => read(signal)))).flat(),
  };
}

async function readSpecs(
  file: Awaited<ReturnType<typeof readClusterFile>>,
  { config, environment, signal, ownHosts }: ClusterDoctorParts,
): Promise<FoundSpecs> {
  const specs = new Map<string, ClusterSpec>();
  const problems: string[] = [];
  const sources = openSources(file, {
    apiServer: () => openApiServer(config, environment),
    ownHosts: () => ownHosts(signal),
    now: () => performance.now(),
  });
  for (const source of sources) {
    try {
      for (const found of (await source.read(signal)).values()) {
        if (found instanceof TailcastError) problems.push(found.detail ?? found.message);
        else if (specs.has(found.name)) problems.push(`two sources describe the cluster ${found.name}`);
        else specs.set(found.name, found);
      }
    } catch (error) {
      problems.push(`${source.name}: ${errorText(error)}`);
    }
  }
  return { specs, problems };
}

function sourcesVerdict({ specs, problems }: FoundSpecs): CheckVerdict {
  const names = [...specs.keys()];
  const more = names.length > MAX_SHOWN ? ` and ${names.length - MAX_SHOWN} more` : '';
  const [first] = problems;
  if (first !== undefined) {
    const others = problems.length === 1 ? '' : ` (and ${problems.length - 1} more)`;
    return failed(`${first}${others}`, 'fix the file or the object: see docs/clusters.md');
  }
  if (names.length === 0)
    return failed('no source describes a cluster', 'add a cluster: see docs/clusters.md');
  return ok(`${names.slice(0, MAX_SHOWN).join(', ')}${more}`);
}

/** Returns the checks of one cluster. The ids and titles of these checks start with the name of the cluster. */
function checksOf(
  spec: ClusterSpec,
  { config, environment, caller, grantNeeds }: ClusterDoctorParts,
  grants: ((signal: AbortSignal) => Promise<readonly CallerGrant[]>) | undefined,
): readonly Check[] {
  const { name } = spec;
  const open = () => createClusterServer(spec, { config, environment, log: createSilentLogger() });
  const api = apiServerChecks({ open, unixMs: Date.now, prefix: ownPrefix(spec) });
  const own = [
    ...api.checks,
    // A gateway that sends the caller's identity in request headers has no account with rights to check.
    ...(spec.identity === 'requestHeader'
      ? []
      : permissionChecks({ client: api.client, mode: config.mode, namespace: 'default' })),
  ].map((check) => ({
    ...check,
    id: `${name}/${check.id}`,
    title: `${name}: ${check.title}`,
    ...(check.needs === undefined ? {} : { needs: check.needs.map((id) => `${name}/${id}`) }),
  }));
  if (grants === undefined) return own;
  const named = grantsCheck(grants, { needs: grantNeeds, only: caller, cluster: name });
  return [...own, { ...named, id: `${name}/grants`, title: `${name}: grants` }];
}
