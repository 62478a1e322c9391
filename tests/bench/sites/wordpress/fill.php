<?php
// Installs WordPress into an empty schema and fills it: php fill.php FOLDER PASSWORD
//
// 200 posts of 20 categories and 40 tags, of three authors; 600 comments; options as plugins leave
// them. The same in each run.

list(, $folder, $password) = $argv;
$_SERVER += array('HTTP_HOST' => 'pages.test', 'SERVER_PROTOCOL' => 'HTTP/1.1',
                  'REQUEST_METHOD' => 'GET', 'REQUEST_URI' => '/');
define('WP_INSTALLING', true);
require "$folder/wp-load.php";
require ABSPATH . 'wp-admin/includes/upgrade.php';

function wp_new_blog_notification($title, $url, $user_id, $password) {} // would send mail

const WORDS = 'lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt'
    . ' ut labore et dolore magna aliqua enim ad minim veniam quis nostrud exercitation ullamco';

function words(int $count): string {
    static $all = null;
    $all = $all ?? explode(' ', WORDS);
    $taken = array();
    for ($at = 0; $at < $count; $at++) {
        $taken[] = $all[mt_rand(0, count($all) - 1)];
    }
    return ucfirst(implode(' ', $taken)) . '.';
}

function paragraphs(int $count): string {
    $made = '';
    for ($at = 0; $at < $count; $at++) {
        $made .= "<!-- wp:paragraph --><p>" . words(60) . "</p><!-- /wp:paragraph -->\n";
    }
    return $made;
}

mt_srand(14);
wp_install('Pages', 'admin', 'admin@pages.test', true, '', $password);
wp_set_current_user(1);
wp_delete_post(1, true); // the one each new site has: it bears the time of its making

$authors = array(1);
foreach (array('ann', 'bob') as $login) {
    $authors[] = wp_insert_user(array('user_login' => $login, 'user_pass' => $password,
                                      'user_email' => "$login@pages.test", 'role' => 'author'));
}
$categories = array();
for ($at = 1; $at <= 20; $at++) {
    $made = wp_insert_term("Category $at", 'category', array('slug' => "category-$at"));
    $categories[] = $made['term_id'];
}
wp_defer_term_counting(true);
wp_defer_comment_counting(true);
for ($at = 1; $at <= 200; $at++) {
    $date = gmdate('Y-m-d H:i:s', strtotime('2024-01-01 UTC') + $at * 86400);
    $id = wp_insert_post(array(
        'post_title' => "Post $at " . words(4), 'post_name' => "post-$at",
        'post_content' => paragraphs(5), 'post_status' => 'publish',
        'post_author' => $authors[$at % count($authors)],
        'post_date' => $date, 'post_date_gmt' => $date,
        'post_category' => array($categories[$at % 20], $categories[($at * 7) % 20]),
        'tags_input' => array('tag ' . $at % 40, 'tag ' . ($at * 3) % 40),
        'meta_input' => array('rating' => $at % 5, 'source' => "source-$at"),
    ), true);
    if (is_wp_error($id)) {
        fwrite(STDERR, $id->get_error_message() . "\n");
        exit(1);
    }
    for ($comment = 1; $comment <= 3; $comment++) {
        wp_insert_comment(array(
            'comment_post_ID' => $id, 'comment_author' => "Reader $comment",
            'comment_author_email' => "reader$comment@pages.test", 'comment_approved' => 1,
            'comment_content' => words(20), 'comment_date' => $date, 'comment_date_gmt' => $date,
        ));
    }
}
wp_defer_comment_counting(false);
wp_defer_term_counting(false);
for ($at = 1; $at <= 200; $at++) {
    add_option("plugin_option_$at", array('enabled' => true, 'text' => words(10)), '',
               $at % 2 ? 'yes' : 'no');
}
global $wp_rewrite;
$wp_rewrite->set_permalink_structure('/%postname%/');
delete_option('rewrite_rules'); // the first page makes them, with those of categories
echo wp_count_posts()->publish, " posts\n";
