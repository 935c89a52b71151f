import { num, span, time } from '../format';
import type { Job } from '../types';
import { At } from './card';
import { tenantHref } from './name';
import { Sentence } from './sentence';

/** One sentence: the state of a job, what holds it, and when it is expected to go. */
export function JobSentence({ j }: { j: Job }) {
	const now = time(j.now), attempt = `, attempt ${num(j.attempt)} of ${num(j.max_attempts)}`;
	const at = (text: string | undefined, unknown = '') => (!text ? unknown : time(text) <= now + 1 && unknown ? 'now' : <>at <b class="nowrap"><At at={text} now={now} /></b></>);
	const goes = <>{j.confidence === 'rough' && 'roughly '}{at(j.expected_at, 'at an unknown time')}</>;
	if (j.state === 'waiting') {
		return <Sentence of={{ ...j, waiting: 1 }} opens={j.window_opens} full={j.full} link rest={<><b>{num(j.position ?? 0)}</b> ahead of it, expected {goes}</>} />;
	}
	const told: Record<string, preact.ComponentChildren> = {
		scheduled: <>is scheduled, expected {goes}</>,
		held: <>is held by a worker, its slot is {j.until && time(j.until) > now ? <>in <b class="nowrap">{span(time(j.until) - now)}</b></> : 'now'}</>,
		sending: <>is being sent{attempt}</>,
		retrying: <>failed and will be retried {at(j.until, 'soon')}{attempt}</>,
		archived: <>failed permanently {at(j.since)}, after {j.attempt === 1 ? 'one attempt' : `${num(j.attempt)} attempts`}</>,
		expired: <>expired {at(j.since)}: its deadline passed before it could go</>,
		cancelled: <>was cancelled {at(j.since)}</>,
		completed: <>is done {at(j.since)}</>,
	};
	return <p class="sentence"><a href={tenantHref(j.queue, j.tenant)}><bdi>{j.tenant}</bdi></a>’s <bdi>{j.kind}</bdi> {told[j.state] ?? `is ${j.state}`}</p>;
}
