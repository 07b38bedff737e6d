/**
 * Values of the `Warning` header that kubectl prints (RFC 7234 section 5.5, as `k8s.io/apimachinery/pkg/util/net`
 * parses it).
 */

const MAX_WARNING_LENGTH = 512;

/** Returns `299 - "text"`. Characters outside printable ASCII become `?`; long texts are cut. */
export function formatWarning(text: string): string {
  const printable = text.slice(0, MAX_WARNING_LENGTH).replaceAll(/[^ -~]/g, '?');
  return `299 - "${printable.replaceAll(/["\\]/g, '\\$&')}"`;
}
