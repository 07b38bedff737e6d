/** The commands of `tailcast doctor`. */
import type { Command } from 'commander';
import type { CommandContext } from '../config/command-context.ts';
import { GATEWAY_SETTINGS } from '../config/gateway.ts';
import { OPERATOR_CHECKS, OPERATOR_SETTINGS } from '../config/operator.ts';
import { RECORDER_SETTINGS } from '../config/recorder.ts';
import { withReferenceNames } from '../config/reference-names.ts';
import type { SettingTable } from '../config/settings.ts';
import type { Check } from '../doctor/checks.ts';
import { TailcastError } from '../errors.ts';
import type { DoctorRun } from './doctor.ts';
import { formatFailure } from './failure-text.ts';
import { print } from './output.ts';
import { addSettingOptions, readRoleSettings } from './role-options.ts';

/**
 * Adds `doctor`. `doctor <role>` accepts all settings of the role, so that it checks the role's actual configuration.
 */
export function addDoctor(program: Command, context: CommandContext, outcome: { code: number }): void {
  const doctor = program
    .command('doctor')
    .description('find problems of an installation, and print how to fix them')
    .exitOverride();
  const role = (name: string, description: string, table: SettingTable): Command =>
    addSettingOptions(doctor.command(name).description(description).exitOverride(), table)
      .option('--json', 'one JSON object instead of lines')
      .addHelpText('after', '\nExit code: 0 no check failed, 1 a check failed, 2 the settings are wrong.');
  role('gateway', 'check tailscaled, certificate, API server, grants and recorders', GATEWAY_SETTINGS)
    .option('--caller <node>', 'check only the grants of this node (name or tailnet address)')
    .option('--through <url>', 'only measure, in 80 s, whether a proxy at this URL ends silent connections')
    .action(async ({ json, caller, through, ...options }: Record<string, unknown>) => {
      const { gatewayChecks } = await import('../compose/doctor-gateway.ts');
      await examine('gateway', json === true, async (signal) => {
        const { GATEWAY_CHECKS } = await import('../compose/gateway-checks.ts');
        const config = readRoleSettings(GATEWAY_SETTINGS, options, context.environment, GATEWAY_CHECKS);
        const only = typeof caller === 'string' ? caller : undefined;
        if (typeof through === 'string') return throughProxy(through);
        return gatewayChecks(config, { environment: context.environment, signal, caller: only });
      });
    });
  role('recorder', 'check tailscaled, uploaders, the store and the disk', RECORDER_SETTINGS).action(
    async ({ json, ...options }: Record<string, unknown>) => {
      const { recorderChecks } = await import('../compose/doctor-recorder.ts');
      await examine('recorder', json === true, async (signal) => {
        const { RECORDER_CHECKS } = await import('../compose/recorder-checks.ts');
        const named = withReferenceNames(context.environment);
        const config = readRoleSettings(RECORDER_SETTINGS, options, named, RECORDER_CHECKS);
        return recorderChecks(config, { environment: context.environment, signal, caller: undefined });
      });
    },
  );
  role(
    'operator',
    'check custom resource definitions, rights, control server, unready resources and leftovers',
    OPERATOR_SETTINGS,
  ).action(async ({ json, ...options }: Record<string, unknown>) => {
    const { operatorChecks } = await import('../compose/operator-doctor.ts');
    await examine('operator', json === true, async (signal) => {
      const config = readRoleSettings(OPERATOR_SETTINGS, options, context.environment, OPERATOR_CHECKS);
      return operatorChecks(config, context.environment, signal);
    });
  });

  async function examine(
    ...[role, json, checks]: [DoctorRun['role'], boolean, DoctorRun['checks']]
  ): Promise<void> {
    const { examineRole } = await import('./doctor.ts');
    try {
      outcome.code = await examineRole({ role, json, checks }, context);
    } catch (error) {
      if (!(error instanceof TailcastError)) throw error;
      await print(context.stderr, formatFailure(error));
      outcome.code = 2;
    }
  }
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
