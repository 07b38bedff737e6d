/**
 * Translates the environment variables of the reference (Tailscale's tsrecorder), so that deployments of the reference
 * can also start this recorder. Variables of tailcast take precedence over translated variables. The variables of the
 * AWS SDK need no translation.
 */

/**
 * Returns `environment` with the translated variables of the reference. A variable of tailcast that is already set
 * stays unchanged.
 */
export function withReferenceNames(environment: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  const translated = new Map<string, string>();
  const destination = environment.get('TSRECORDER_DST') ?? '';
  const endpoint = /^s3:\/\/(.*)$/.exec(destination)?.[1];
  if (endpoint !== undefined) {
    translated.set('TAILCAST_STORE', `s3://${environment.get('TSRECORDER_BUCKET') ?? ''}`);
    if (endpoint !== '') translated.set('TAILCAST_S3_ENDPOINT', `https://${endpoint}`);
  } else if (destination !== '') translated.set('TAILCAST_STORE', destination);
  const ui = environment.get('TSRECORDER_UI');
  if (ui !== undefined) translated.set('TAILCAST_UI', ui);
  if (environment.get('S3_SEND_CONTENT_MD5') === 'true') translated.set('TAILCAST_S3_CHECKSUMS', 'md5');
  const region = environment.get('AWS_REGION') ?? environment.get('AWS_DEFAULT_REGION');
  if (region !== undefined) translated.set('TAILCAST_S3_REGION', region);
  return new Map([...translated, ...environment]);
}
