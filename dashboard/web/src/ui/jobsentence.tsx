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
	const ended: Record<string, preact.ComponentChildren> = {
		done: <>is done {at(j.since)}</>,
		expired: <>expired {at(j.since)}: its deadline passed before it could go</>,
		cancelled: <>was cancelled {at(j.since)}</>,
		crashed: <>was archived {at(j.since)}: its workers died during its calls</>,
		unknown: <>was archived {at(j.since)}: the result of its call is not known</>,
		archived: <>failed permanently {at(j.since)}, after {j.attempt === 1 ? 'one attempt' : `${num(j.attempt)} attempts`}</>,
	};
	const sending = j.until && time(j.until) > now
		? <>is held by a worker, its slot is in <b class="nowrap">{span(time(j.until) - now)}</b></>
		: <>is being sent{attempt}{j.progress && <>, <b>{num(j.progress.percent)} %</b>{j.progress.text && <>: <bdi>{j.progress.text}</bdi></>}</>}</>;
	const going: Record<string, preact.ComponentChildren> = {
		scheduled: <>is scheduled, expected {goes}</>,
		pending: sending,
		active: sending,
		retry: <>will be retried {at(j.until, 'soon')}{attempt}</>,
	};
	const text = j.outcome ? ended[j.outcome] : going[j.state];
	return <p class="sentence"><a href={tenantHref(j.queue, j.tenant)}><bdi>{j.tenant}</bdi></a>’s <bdi>{j.kind}</bdi> {text ?? `is ${j.outcome ?? j.state}`}</p>;
}
