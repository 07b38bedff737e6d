/** The commands of `tailcast doctor`. */
import { GATEWAY_SETTINGS } from '../config/gateway.ts';
import { OPERATOR_CHECKS, OPERATOR_SETTINGS } from '../config/operator.ts';
import { RECORDER_SETTINGS } from '../config/recorder.ts';
import { withReferenceNames } from '../config/reference-names.ts';
import type { SettingTable } from '../config/settings.ts';
import type { Check } from '../doctor/checks.ts';
import { TailcastError } from '../errors.ts';
import type { DoctorRun } from './doctor.ts';
import { addSettingOptions, readRoleSettings } from './role-options.ts';
import type { Options, Tool } from './tool.ts';

/**
 * Adds `doctor`. `doctor <role>` accepts all settings of the role, so that it checks the role's actual configuration.
 */
export function addDoctor(program: Tool): void {
  const { context } = program;
  const { environment } = context;
  const doctor = program.add('doctor', 'find problems of an installation, and print how to fix them');
  const role = (
    name: DoctorRun['role'],
    description: string,
    table: SettingTable,
    checks: (options: Options, signal: AbortSignal) => ReturnType<DoctorRun['checks']>,
  ): Tool =>
    addSettingOptions(doctor.add(name, description), table)
      .option('--json', 'one JSON object instead of lines')
      .addHelpText('after', '\nExit code: 0 no check failed, 1 a check failed, 2 the settings are wrong.')
      .failsWith(2)
      .action(async ({ json, ...options }: Options) => {
        const { examineRole } = await import('./doctor.ts');
        const run = {
          role: name,
          json: json === true,
          checks: (signal: AbortSignal) => checks(options, signal),
        };
        return examineRole(run, context);
      });
  role(
    'gateway',
    'check tailscaled, certificate, API server, grants and recorders',
    GATEWAY_SETTINGS,
    async ({ caller, through, ...options }, signal) => {
      const { GATEWAY_CHECKS } = await import('../compose/gateway-checks.ts');
      const config = readRoleSettings(GATEWAY_SETTINGS, options, environment, GATEWAY_CHECKS);
      const only = typeof caller === 'string' ? caller : undefined;
      if (typeof through === 'string') return throughProxy(through);
      const { gatewayChecks } = await import('../compose/doctor-gateway.ts');
      return gatewayChecks(config, { environment, signal, caller: only });
    },
  )
    .option('--caller <node>', 'check only the grants of this node (name or tailnet address)')
    .option('--through <url>', 'only measure, in 80 s, whether a proxy at this URL ends silent connections');
  role(
    'recorder',
    'check tailscaled, uploaders, the store and the disk',
    RECORDER_SETTINGS,
    async (options, signal) => {
      const { RECORDER_CHECKS } = await import('../compose/recorder-checks.ts');
      const named = withReferenceNames(environment);
      const config = readRoleSettings(RECORDER_SETTINGS, options, named, RECORDER_CHECKS);
      const { recorderChecks } = await import('../compose/doctor-recorder.ts');
      return recorderChecks(config, { environment, signal, caller: undefined });
    },
  );
  role(
    'operator',
    'check custom resource definitions, rights, control server, unready resources and leftovers',
    OPERATOR_SETTINGS,
    async (options, signal) => {
      const config = readRoleSettings(OPERATOR_SETTINGS, options, environment, OPERATOR_CHECKS);
      return (await import('../compose/operator-doctor.ts')).operatorChecks(config, environment, signal);
    },
  );
}

/** Returns the checks of a proxy in front of the gateway. @throws TailcastError `USAGE` */
async function throughProxy(url: string): Promise<readonly Check[]> {
  const through = URL.parse(url.includes('://') ? url : `https://${url}`);
  if (through?.protocol !== 'https:') {
    throw new TailcastError('USAGE', `--through ${url} is not a host name or an https:// URL`);
  }
  const { silenceCheck } = await import('../doctor/silence-check.ts');
  return [silenceCheck({ through, monotonicMs: () => performance.now() })];
}
