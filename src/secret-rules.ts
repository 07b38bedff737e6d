/** Rules that recognise typical forms of secrets in text. */

/**
 * Rule that matches secrets of one form. If `shape` has a capture group `keep`, the text of this group stays, and the
 * rest of the match is replaced.
 */
export interface SecretRule {
  /** Words in lower case. The rule is not applied to lines that contain none of these words. */
  readonly words: readonly string[];
  readonly shape: RegExp;
  /** Set if `shape` applies only after a certain command. */
  readonly after?: {
    readonly command: RegExp;
    /** Beginning of `shape`, up to the secret. */
    readonly option: RegExp;
  };
}

/** Separator between the words of a command. The separator occurs in no secret and in no command. */
export const BETWEEN_WORDS = '\u2028';
/** A quoted word up to the closing quote. In SQL, a quote within the word is doubled. */
const QUOTED = String.raw`"(?:\\[^\u2028]|[^"\\\u2028])+"?|'(?:[^'\u2028]|'')+'?`;
/** A value: a quoted word, the rest of a command argument, or text without spaces. */
const value = (first: string): string => String.raw`(?:${QUOTED}|(?<=\u2028)${first}[^\u2028]*|${first}\S*)`;
/** Assigned value, without the quotes around it. */
const ASSIGNED = String.raw`(?:(?<=")(?:\\[^\u2028]|[^"\\\u2028]){4,}|(?<=')[^'\u2028]{4,}|(?<!["'])[^\s"',;]{4,})`;
/** Assigned value, without the quotes around the assignment. */
const ASSIGNED_LITERAL = [
  String.raw`(?<="[\w.-]+=)[^"\u2028]+|(?<='[\w.-]+=)[^'\u2028]+`,
  String.raw`(?<=\u2028(?:--from-literal=)?[\w.-]+=)[^\u2028]+`,
  value(String.raw`\S`),
];
/** A word of a shell command that does not start with a hyphen or an operator such as `|`. */
const NAME = String.raw`[^\s|;&>-]\S{0,127}`;
/** A dollar-quoted string literal of PostgreSQL. */
const DOLLAR_QUOTED = String.raw`\$(?<tag>\w{0,16})\$[^$\u2028]+(?:\$\k<tag>\$)?`;
/** Name of a variable or field whose value is a secret key. */
const KEY_NAME = [
  '(?:secret|private|signing|encryption|master|account|preshared|auth|client)',
  '[_-]?key(?:[_-](?:base|data))?',
].join('');
/**
 * Returns an expression for up to `count` options. If every option could match with and without a value, the
 * expression would try `2 ** count` ways. Therefore, if a word with a hyphen follows an option that may have a value,
 * the expression reads the word only as this value. There is one exception: the word is itself an option that may have
 * a value, and the word after it has no hyphen. The expression then also reads the word as an option, because the
 * secret may follow the value of this option.
 *
 * @param valued options that may have a value in the next word, without the hyphen
 * @param max maximum number of characters of a value, or of an option without the hyphen
 */
const options = (valued: string, count: number, max?: number): string => {
  const word = String.raw`\S{1,${max ?? ''}}`;
  const isValue = String.raw`-(?!${valued}\s{1,4}(?!\s|-\S))\S{0,${max === undefined ? '' : max - 1}}\s`;
  const once = String.raw`\s{1,4}-(?:${valued}\s{1,4}${word}|(?!${valued}\s{1,4}${isValue})${word})`;
  return `(?:${once}){0,${count}}`;
};
/**
 * Returns the pattern of a rule: text that stays (`keep`), then a secret.
 * @param secrets alternative patterns of the secret
 */
const shape = (keep: string, secrets: string | readonly string[], flags = 'g'): RegExp =>
  new RegExp(`(?<keep>${keep})(?:${[secrets].flat().join('|')})`, flags);
/** Returns a rule about an option that contains a secret. The rule applies only if the option follows `command`. */
const afterCommand = (
  words: readonly string[],
  command: RegExp,
  keep: string,
  secret: string,
): SecretRule => ({
  words,
  shape: shape(keep, secret, 'y'),
  after: { command, option: new RegExp(keep, 'g') },
});
/** Matches a pipe and a command that reads a password from standard input. */
const READS_PASSWORD = String.raw`(?=\s{0,4}\|\s{0,4}(?:sudo\s{1,4}-\w{0,3}S|kinit\b|[^|;&\u2028]{1,128}?-stdin\b))`;
/** Returns rules about an option that contains a user, a separator and a password. */
const userOption = (words: readonly string[], command: RegExp, option: string, mark: string): SecretRule[] =>
  [`"[^"${mark}\u2028]*${mark}`, `'[^'${mark}\u2028]*${mark}`, String.raw`[^\s${mark}"']*${mark}`].map(
    (user, at) =>
      afterCommand(
        words,
        command,
        option + user,
        [String.raw`[^"\u2028]+`, String.raw`[^'\u2028]+`, value(String.raw`\S`)][at] ?? '',
      ),
  );
/** Returns a rule about an option that contains a password. */
const option = (words: readonly string[], command: RegExp, letters: string): SecretRule =>
  afterCommand(words, command, String.raw`\s-${letters}\s{0,4}`, value(String.raw`[^\s=-]`));

/**
 * NOTE: Recorded programs choose the text, so a rule must not read a line repeatedly. In a regular expression, a
 * repetition that can start at many positions of a word reads the word many times. A regular expression for a command,
 * its options and everything between them also reads the line many times. `test/search/secret-growth.test.ts` measures
 * each rule with repeated text.
 */
export const SECRET_RULES: readonly SecretRule[] = [
  { words: ['akia', 'asia'], shape: /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g },
  {
    words: ['ghp_', 'gho_', 'ghu_', 'ghs_', 'ghr_', 'github_pat_', 'glpat-', 'npm_', 'xox', 'sk-', 'aiza'],
    shape: /\b(?:gh[pousr]_|github_pat_|glpat-|npm_|xox[abeoprs]-|sk-|AIza)[A-Za-z0-9_-]{16,}/g,
  },
  {
    words: ['hvs.', 'hvb.', 'tskey-', 'dckr_', 'pypi-', '_live_', 'dop_v1_', 'glrt-', 'ya29.', 'age-s'],
    shape:
      /\b(?:hv[sb]\.|tskey-|dckr_pat_|pypi-|[sr]k_live_|dop_v1_|glrt-|ya29\.|AGE-SECRET-KEY-1)[\w.-]{16,}/g,
  },
  {
    words: ['eyj'],
    // the lookahead reads each word once; otherwise, the rest of a word would be read again for each `-eyJ` in the word
    shape: /(?<![\w-])(?=[\w-]{11,}\.[\w-]{8})(?<keep>[\w-]*?\b)eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?/g,
  },
  { words: ['bearer'], shape: shape(String.raw`\bBearer\s{1,4}`, '[A-Za-z0-9._~+/=-]{8,}', 'gi') },
  {
    words: ['authorization'],
    shape: shape(
      String.raw`\bAuthorization["']?\s{0,2}[=:]\s{0,4}["']?(?:(?:Basic|Bearer|Token|ApiKey|Digest|Negotiate|NTLM)\s{1,4})?`,
      String.raw`[^\s"']{4,}`,
      'gi',
    ),
  },
  {
    words: ['-key', '"auth"'],
    shape: shape(String.raw`(?:\w-key|"auth)["']?\s{0,2}:\s{0,4}["']?`, ASSIGNED, 'gi'),
  },
  { words: ['://'], shape: shape(String.raw`[a-z0-9+.-]:\/\/[^\s:@/]*:`, String.raw`[^\s/]+(?=@)`, 'gi') },
  { words: ['://'], shape: shape(String.raw`[a-z0-9+.-]:\/\/`, String.raw`[\w.-]{20,}(?=@)`) },
  {
    words: [
      'gldt-',
      'glcbt-',
      'glptt-',
      'glft-',
      'glsoat-',
      'glimt-',
      'glagent-',
      'gloas-',
      'xapp-',
      'gocspx-',
    ],
    shape: /\b(?:gl(?:dt|cbt|ptt|ft|soat|imt|agent|oas)-|xapp-|GOCSPX-)[\w-]{16,}/g,
  },
  {
    words: ['hf_', '_test_', 'whsec_', 'shp', 'sq0csp-', 'glsa_', 'sntry', 'lin_api_', 'nvapi-', 'atatt3'],
    shape:
      /\b(?:hf_|[sr]k_test_|whsec_|shp(?:at|ss|ca|pa)_|sq0csp-|glsa_|sntry[su]_|lin_api_|nvapi-|ATATT3)[\w-]{16,}/g,
  },
  {
    words: ['pmak-', 'eyjrijoi', '1//0', 'k10', '.atlasv1.', '7q~', '8q~'],
    shape: new RegExp(
      [
        String.raw`\bPMAK-[\w-]{32,}|\beyJrIjoi[\w-]{20,}|\b1\/\/0[\w-]{20,}|\bK10[\da-f]{16,}::[\w.:-]{8,}`,
        String.raw`\b[A-Za-z\d]{14}\.atlasv1\.[\w-]{20,}|(?<![\w.~-])[\w.~-]{3}[78]Q~[\w.~-]{31}`,
      ].join('|'),
      'g',
    ),
  },
  {
    words: ['hooks.slack.com', '/api/webhooks/', '/webhookb2/', '-signature=', 'sig='],
    shape: shape(
      [
        String.raw`\bhooks\.slack\.com\/[a-z]{1,16}\/|\/api\/webhooks\/\d{1,20}\/|\/webhookb2\/`,
        String.raw`\bX-(?:Amz|Goog)-Signature=|[?&]sig=`,
      ].join('|'),
      String.raw`[\w%+=@/-]{16,}`,
      'gi',
    ),
  },
  {
    words: ['cookie'],
    shape: shape(String.raw`\bCookie["']?:\s{0,4}`, String.raw`[^"'\u2028]{4,}`, 'gi'),
  },
  {
    words: ['machine'],
    shape: shape(String.raw`\bmachine\s${NAME}\slogin\s${NAME}\spassword\s`, value(String.raw`\S`)),
  },
  {
    words: ['key', 'redis'],
    shape: shape(`(?:${KEY_NAME}|REDISCLI_AUTH)["']?\\s{0,2}[=:]\\s{0,2}["']?`, ASSIGNED, 'gi'),
  },
  { words: ['sg.'], shape: /\bSG\.[\w-]{16,}\.[\w-]{16,}/g },
  { words: ['sshpass'], shape: shape(String.raw`\bsshpass\s{1,4}-p\s{0,4}`, value(String.raw`\S`)) },
  afterCommand(
    ['mysql', 'mariadb', '7z'],
    /\b(?:mysql[a-z]{0,12}|mariadb|7z[ar]?)\b/,
    String.raw`\s-p`,
    value(String.raw`[^\s-]`),
  ),
  ...userOption(
    ['curl', 'http -', 'https -', 'ncat', 'etcdctl', '--auth'],
    /\b(?:curl|https?(?!:)|ncat|etcdctl)\b/,
    String.raw`\s(?:-[A-Za-z]{0,8}?[uUa]|--(?:proxy-)?(?:user|auth))[\s=]{0,4}`,
    ':',
  ),
  ...userOption(
    ['smb', 'rpcclient'],
    /\b(?:smb[a-z]{1,9}|rpcclient)\b/,
    String.raw`\s(?:-U|--user)[\s=]{0,4}`,
    '%',
  ),
  option(
    ['login'],
    /\b(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|crane|az|oc)(?:\s{1,4}registry)?\s{1,4}login\b/,
    'p=?',
  ),
  option(
    ['useradd', 'usermod', 'cqlsh', 'mongo'],
    /\b(?:user(?:add|mod)|cqlsh|mongo(?:sh|dump|restore|export|import)?)\b/,
    'p=?',
  ),
  option(['ldap'], /\bldap[a-z]{3,9}\b/, '[A-Za-z]{0,8}?w'),
  option(['openssl'], /\bopenssl\b/, String.raw`[kK](?=\s)`),
  option(['redis-cli'], /\bredis-cli\b/, String.raw`a(?=[\s=])=?`),
  option(
    ['sqlcmd', 'ipmitool', 'zip', 'ssh-keygen'],
    /\b(?:sqlcmd|ipmitool|(?:un)?zip|ssh-keygen)\b/,
    '[PN]',
  ),
  option(['snmp'], /\bsnmp[a-z]{2,9}\b/, '[AXc]'),
  afterCommand(['freerdp'], /\b[wx]?freerdp3?\b/, String.raw`\s\/p:`, value(String.raw`\S`)),
  afterCommand(['nmcli'], /\bnmcli\b/, String.raw`\spassword\s{1,4}`, value(String.raw`\S`)),
  afterCommand(
    ['<<<'],
    /\bkinit\b|-stdin\b|\bsudo\s{1,4}-\w{0,3}S/,
    String.raw`(?<!<)<<<\s{0,4}`,
    value(String.raw`\S`),
  ),
  {
    words: ['sqlplus'],
    shape: shape(
      String.raw`\bsqlplus(?:\s{1,4}-\w{1,9}){0,4}\s{1,4}[^\s/"'@-][^\s/"'@]{0,127}\/`,
      String.raw`[^\s@/]+`,
    ),
  },
  {
    words: ['auth'],
    // matches a user and a password, or only a password
    shape: shape(
      String.raw`(?:\d>|\bredis-cli)\s{1,4}AUTH\s{1,4}`,
      String.raw`${value(String.raw`\S`)}(?:\s{1,4}${value(String.raw`[^\s|;&>]`)})?`,
      'gi',
    ),
  },
  {
    words: ['passwd'],
    shape: shape(
      String.raw`\b(?:openssl\s{1,4}passwd|mkpasswd)${options('[mSR]', 6, 32)}\s{1,4}`,
      value(String.raw`[^\s|;&>-]`),
    ),
  },
  {
    words: ['rabbitmqctl', 'wpa_passphrase', 'net user', 'mc alias'],
    shape: shape(
      [
        String.raw`\b(?:rabbitmqctl\s(?:add_user|change_password|authenticate_user)|wpa_passphrase|net\suser`,
        String.raw`mc\salias\sset(?:\s${NAME}){2})\s${NAME}\s`,
      ].join('|'),
      value(String.raw`[^\s|;&>/-]`),
    ),
  },
  {
    words: ['vault'],
    shape: shape(
      String.raw`\bvault\s{1,4}login${options('method', 8)}\s{1,4}`,
      value(String.raw`[^\s=-](?![^\s=]*=)`),
    ),
  },
  afterCommand(
    ['vault'],
    /\bvault\s{1,4}(?:write|kv\s{1,4}(?:put|patch))\b/,
    String.raw`\s[\w.-]+=`,
    value(String.raw`[^\s@]`),
  ),
  {
    words: ['--from-literal'],
    shape: shape(String.raw`--from-literal[\s=]{1,4}["']?[\w.-]+=`, ASSIGNED_LITERAL),
  },
  {
    words: ['htpasswd'],
    shape: shape(
      String.raw`\bhtpasswd(?=(?:\s-\S{1,16}){0,6}?\s-[A-Za-z]{0,8}b)(?:\s(?:-\S+|\d\d?)){1,6}\s[^\s|;&>-]\S*\s`,
      // matches a user and a password, or only a password
      String.raw`${value(String.raw`[^\s|;&>-]`)}(?:\s{1,4}${value(String.raw`[^\s|;&>-]`)})?`,
    ),
  },
  {
    words: ['stdin', 'sudo', 'kinit'],
    shape: shape(
      String.raw`\b(?:echo|printf)\s{1,4}(?:-\w{1,3}\s{1,4})?`,
      String.raw`(?:"[^"\u2028]+"|'[^'\u2028]+'|[^\s"'|;&]+)${READS_PASSWORD}`,
    ),
  },
  {
    words: ['chpasswd'],
    shape: shape(
      String.raw`(?<![^\s"'])[^\s:"']+:`,
      String.raw`[^\s"'|]+(?=["']?\s{0,4}\|\s{0,4}(?:sudo\s{1,4})?chpasswd)`,
    ),
  },
  {
    words: ['identified', 'secret_access_key', '_authtoken'],
    shape: shape(
      String.raw`(?:\bidentified\s(?:with\s{1,4}\S{1,64}\s)?(?:by|as)|secret_access_key|_authtoken)\s(?:password\s)?`,
      value(String.raw`[^\s;=]`),
      'gi',
    ),
  },
  {
    words: ['password'],
    shape: shape(
      String.raw`\bpassword(?:\s{1,4}|\s{0,4}\(\s{0,4})[en]?`,
      `(?:${QUOTED}|${DOLLAR_QUOTED})`,
      'gi',
    ),
  },
  {
    words: ['pass', 'pwd', 'token', 'key', 'secret'],
    shape: shape(
      String.raw`(?:password|passwd|passphrase|token|api-?key|access-?key|secret-?key|(?<=\s--?(?:client-|shared-)?)secret|(?<=[-_])(?:db|store|key)?(?:pass|pwd))(?=[\s=])(?<=\s-[\w-]*)[\s=]{1,4}`,
      String.raw`(?:(?<=\u2028)[^\u2028=][^\u2028]*|${value(String.raw`[^\s=]`)})`,
      'gi',
    ),
  },
  {
    words: ['passw', 'secret', 'token', 'key'],
    shape: shape(
      String.raw`(?:password|passwd|secret|token|api_?key|access_?key)["']?\s{0,2}[=:]\s{0,2}["']?`,
      ASSIGNED,
      'gi',
    ),
  },
  {
    words: ['pass', 'pwd', 'pw=', 'pw:'],
    // `PWD=` is excluded, because it names the working directory
    shape: shape(
      String.raw`(?:(?:_|-|\b|\b[Dd][Bb])(?:pass|PASS|Pass|pwd|pw)|_PWD)(?:["']\s{0,2}:|:|["']?=)\s{0,2}["']?`,
      ASSIGNED,
    ),
  },
];
